#!/bin/bash
# What is to be true of a release, tried: wheel and sdist without the source beside them, and the main job in a root that cannot be
# written, by another user without a home, a network or a compiler. Usage: tests/release.sh [PYTHON]; as root, for the last part.
set -eu -o pipefail
python=${1:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d /var/tmp/unmix-release-XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
say() { echo "release: $*"; }

version=$("$python" -c "import re, sys; print(re.search(r'VERSION = \"(.*)\"', open(sys.argv[1]).read())[1])" "$root/unmix/_version.py")
grep -q "^## $version" "$root/CHANGELOG.md" || { say "CHANGELOG.md has no section $version"; exit 1; }
grep -q "^version: $version" "$root/CITATION.cff" || { say "CITATION.cff is not of $version"; exit 1; }
say "CHANGELOG.md and CITATION.cff are of $version"

git -C "$root" archive HEAD | tar x -C "$work" --one-top-level=tree
"$python" -m venv "$work/tools" && "$work/tools/bin/pip" install -q build
(cd "$work/tree" && "$work/tools/bin/python" -m build -q --outdir "$work/dist" .)
say "built $(ls "$work/dist" | tr '\n' ' ')"

for package in "$work"/dist/*.whl "$work"/dist/*.tar.gz; do
    rm -rf "$work/venv" && "$python" -m venv "$work/venv" && "$work/venv/bin/pip" install -q "$package"
    (cd "$work" && venv/bin/python -c "import unmix, unmix_cli, pathlib; assert (pathlib.Path(unmix.__file__).parent / 'py.typed').exists()")
    "$work/venv/bin/unmix" --version
done
"$work/tools/bin/pip" install -q py-rattler-build
"$work/tools/bin/python" -c "import rattler_build, sys; rattler_build.Stage0Recipe.from_file(sys.argv[1]).render(rattler_build.VariantConfig(), rattler_build.RenderConfig())" "$root/.ci/conda/recipe.yaml"
say "the conda recipe is sound"

rm -rf "$work/venv" && "$python" -m venv "$work/venv" && "$work/venv/bin/pip" install -q --require-hashes -r "$root/.ci/requirements.lock"
"$work/venv/bin/pip" install -q --no-deps --no-index "$work"/dist/*.whl && "$work/venv/bin/pip" check
say "installed from the lock file, every package by its digest"
mkdir -p "$work/data" && cp "$root"/data/demo* "$work/data/"
"$work/venv/bin/unmix" run "$work/data/demo.hdr" -o "$work/plain" --quiet
"$work/venv/bin/unmix" verify "$work/plain/demo" --all
UNMIX_CACHE_DIR="$work/code" "$work/venv/bin/unmix" warm --device cpu --dtype int16 --interleave bil
chmod -R a+rX,go-w "$work/code"

if [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
    say "not root: the read-only root was not tried"
    exit 0
fi
out=/opt/unmix-release-$$
mkdir -m 700 "$out" && chown 4242:4242 "$out"
trap 'rm -rf "$work" "$out"' EXIT
cat > "$work/inside.sh" <<'INSIDE'
set -eu
base=$(dirname "$(dirname "$(readlink -f "$1/venv/bin/python")")")
mount --make-rprivate /
if [[ $base == /root/* ]]; then  # an interpreter in root's home, which another user may not enter
    mount --bind "$base" /mnt && mount -t tmpfs -o mode=755 tmpfs /root && mkdir -p "$base" && mount --bind /mnt "$base"
    mount -o remount,ro,bind "$base"
fi
mount --bind "$2" "$2"
for each in $(findmnt -rno TARGET | grep -Ev "^(/proc|/sys|/dev|$2)"); do mount -o remount,ro,bind "$each" 2>/dev/null || true; done
cd /
as_user() { setpriv --reuid 4242 --regid 4242 --clear-groups env -i PATH=/usr/bin UNMIX_CACHE_DIR="$out/cache" "$@"; }
out=$2
! as_user touch "$1/there" 2>/dev/null || { echo "the root can be written"; exit 1; }
as_user "$1/venv/bin/unmix" run "$1/data/demo.hdr" -o "$out/maps" --quiet
mkdir "$out/tmp" && chown 4242:4242 "$out/tmp"
as_user TMPDIR="$out/tmp" "$1/venv/bin/unmix" verify "$out/maps/demo" --all  # which unmixes again in a folder of its own
as_user UNMIX_CACHE_DIR="$1/code" "$1/venv/bin/unmix" run "$1/data/demo.hdr" -o "$out/loaded" --quiet
as_user TMPDIR="$out/tmp" UNMIX_CACHE_DIR="$1/code" "$1/venv/bin/unmix" warm --device cpu --dtype int16 --interleave bil > "$out/warm"
! grep -v "was there" "$out/warm" || { echo "code that root compiled was not loaded"; exit 1; }
INSIDE
unshare --net --mount bash "$work/inside.sh" "$work" "$out"
cmp "$out/maps/demo_abundance.img" "$work/plain/demo_abundance.img"
cmp "$out/loaded/demo_abundance.img" "$work/plain/demo_abundance.img"
say "the main job runs in a read-only root, as another user, without home and network, to the same bytes, and loads code that root compiled"
