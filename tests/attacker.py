"""An attacker who owns the folder of the outputs and knows the moment of each step: he sits in Python's audit events.

Before a chosen step of a command (a file that is opened, linked or renamed in the folder) he replaces a name, or all
names that are there, by a link, a hard link or a pipe. A command that would wait for a pipe is noticed, not waited for.
"""

import contextlib
import os
import stat
import sys

TRICKS = {"symlink": os.symlink, "hardlink": os.link, "pipe": lambda victim, path: os.mkfifo(path)}
# Events whose first arguments are names of files; of the others, none makes, opens or names one.
EVENTS = {"open": 1, "os.link": 2, "os.rename": 2, "os.remove": 1, "os.truncate": 1}


def within(file):
    """Whether the call that is audited stands in a file of ours."""
    frame = sys._getframe(3)
    return frame.f_code.co_filename.endswith(file)


class Attacker:
    """Counts the steps of a command in a folder, and plays a trick before one of them."""

    def __init__(self):
        self.folder = None
        self.hooked = False

    def __call__(self, event, arguments):
        if self.folder is None or event not in EVENTS:
            return
        folder, self.folder = self.folder, None  # his own steps do not count
        try:
            self.seen(event, arguments, folder)
        finally:
            self.folder = folder

    def seen(self, event, arguments, folder):
        names = [os.fsdecode(one) for one in arguments[: EVENTS[event]] if isinstance(one, str | bytes | os.PathLike)]
        ours = [os.path.abspath(name) for name in names if os.path.dirname(os.path.abspath(name)) == folder]
        if not ours:
            return
        if self.count == self.step:
            chosen = ours if self.one else [entry.path for entry in os.scandir(folder)]
            for path in chosen:
                if not os.path.isdir(path) or os.path.islink(path):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                    TRICKS[self.trick](self.victim, path)
                    if self.owner is not None and self.trick != "hardlink":
                        os.lchown(path, self.owner, self.owner)
        self.count += 1
        self.steps.append((event, *map(os.path.basename, ours)))
        # `open` says its flags before its opener, which adds others, is called: that is seen as an event of its own.
        with_opener = event == "open" and arguments[1] is not None and within("unmix/io/opening.py")
        if event == "open" and not with_opener and self.waits(ours[0], arguments[2]):
            self.waited.append(ours[0])
            raise OSError(f"would wait for {ours[0]}")

    @staticmethod
    def waits(path, flags):
        """Whether opening a name would wait for somebody at the other end of a pipe."""
        with contextlib.suppress(OSError):
            follows = not flags & os.O_NOFOLLOW
            may_wait = not flags & (os.O_NONBLOCK | os.O_EXCL)
            return may_wait and stat.S_ISFIFO(os.stat(path, follow_symlinks=follows).st_mode)
        return False

    @contextlib.contextmanager
    def at(self, folder, victim=None, step=-1, trick="symlink", one=True, owner=None):
        """Watch a folder; before its step number ``step`` play the trick with the name of the step (``one``), or with
        all names.

        With ``owner`` folder and links are those of the user of this number.
        """
        if not self.hooked:
            sys.addaudithook(self)  # which cannot be taken away again
            self.hooked = True
        self.victim, self.step, self.trick, self.one, self.count, self.waited = victim, step, trick, one, 0, []
        self.steps, self.owner = [], owner
        if owner is not None:
            os.chown(folder, owner, owner)
        self.folder = os.path.abspath(folder)
        try:
            yield self
        finally:
            self.folder = None


ATTACKER = Attacker()
