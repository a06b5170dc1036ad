"""Put objects into stores, whole or not at all, and delete them."""

from pathlib import Path

from ...errors import OutputError
from .path import RemotePath
from .store import client, reason

# A store takes at most 10 000 parts of a file, each but the last of at least 5 MiB.
MOST_PARTS, SMALLEST_PART = 10_000, 5 * 2**20


def upload(file: Path, path: RemotePath) -> None:
    """Upload a file, whole or not at all; `OutputError` where the store fails for `PERSEVERANCE` seconds."""
    import obstore

    try:
        whole = file.stat().st_size
        obstore.put(client(path), path.key, file, chunk_size=max(SMALLEST_PART, -(-whole // MOST_PARTS)))
        size = obstore.head(client(path), path.key)["size"]
    except OSError as error:
        raise OutputError(f"{error.filename or path}: uploading failed: {error.strerror or reason(error)}") from None
    except Exception as error:
        raise OutputError(f"{path}: uploading failed: {reason(error)}") from None
    if size != whole:
        raise OutputError(f"{path}: {size} bytes arrived of {whole}; the same command uploads them again")


def refuse_unwritable(folder: RemotePath, name: str) -> None:
    """Raise `OutputError`, before hours of work, where an object cannot be put, read and deleted under a name."""
    import obstore

    path = folder / name
    try:
        obstore.put(client(path), path.key, b"")
        obstore.head(client(path), path.key)
        obstore.delete(client(path), path.key)
    except FileNotFoundError:
        raise OutputError(f"{folder}: cannot write here: there is no such bucket") from None
    except Exception as error:
        raise OutputError(
            f"{folder}: cannot write, read and delete here, which unmix has to: {reason(error)}"
        ) from None


def delete(path: RemotePath) -> None:
    """Delete an object, if it is there; `OutputError` where the store refuses."""
    import obstore

    try:
        obstore.delete(client(path), path.key)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise OutputError(f"{path}: cannot be deleted: {reason(error)}") from None
