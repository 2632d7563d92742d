"""Disk: the only module that changes the file system, one promise a function.

Every call that changes anything passes one seam (`hook`), by name and with its paths, so that a test can make each
fail, or stop the process, in turn. It promises names that appear whole or not at all, errors that name the path, the
volume and the cure, and that a file which it began and could not finish is gone again. It refuses to follow
symbolic links, and to overwrite: only `replace` and `exchange` take a name that exists. Answers pass as in `files`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from keeper.errors import DiskError, KeeperError, Locked
from keeper.files import Name, failure, raise_failure

Hook = Callable[[str, tuple[Name, ...]], None]

hook: Hook | None = None
"""The seam: called before each change with the call's name and its paths; None in every real run."""

_AT_FDCWD, _NOREPLACE, _EXCHANGE = -100, 1, 2
_FICLONE = 0x40049409

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


def step(call: str, *paths: Name) -> None:
    """Pass the seam; the index calls it for its commits, which SQLite carries out."""
    if hook is not None:
        hook(call, paths)


@contextmanager
def _change(call: str, doing: str, *paths: Name) -> Iterator[None]:
    """Pass the seam, then tell what the system says of the last path as one of ours."""
    try:
        step(call, *paths)
        yield
    except OSError as error:
        raise_failure(error, paths[-1], doing)


def link(source: Name, name: Name) -> None:
    """A second name for the file `source`; `name` must be free (FileExistsError). Raises NoLinks, DiskError."""
    with _change("link", "link", source, name):
        os.link(source, name, follow_symlinks=False)


def replace(source: Name, name: Name) -> None:
    """`source` takes the place of `name` in one step; what stood there loses this name."""
    with _change("replace", "replace", source, name):
        os.rename(source, name)


def _rename2(source: Name, name: Name, flags: int, doing: str) -> None:
    step(doing, source, name)
    if _renameat2 is None:
        raise failure(OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)), name, doing)
    if _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(name), flags) != 0:
        code = ctypes.get_errno()
        raise_failure(OSError(code, os.strerror(code), str(name)), name, doing)


def exchange(one: Name, other: Name) -> None:
    """The two names change places in one step. FileNotFoundError where one is missing; raises NoExchange."""
    try:
        _rename2(one, other, _EXCHANGE, "exchange")
    except OSError as error:
        raise_failure(error, other, "exchange")


def move(source: Name, name: Name) -> None:
    """`source` becomes `name`, which must be free (FileExistsError), in one step."""
    try:
        _rename2(source, name, _NOREPLACE, "move")
    except DiskError:
        # No exclusive rename on that volume: a link is as exclusive, and the second step only drops the old name.
        link(source, name)
        unlink(source)
    except OSError as error:
        raise_failure(error, name, "move")


def unlink(name: Name) -> None:
    """The name goes. One that is gone already is no failure."""
    try:
        step("unlink", name)
        os.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise_failure(error, name, "remove")


def make_dir(name: Name, mode: int = 0o700) -> None:
    """A folder of exactly that mode, whatever the umask (KEEP-16); FileNotFoundError where its parent is gone."""
    with _change("mkdir", "make the folder", name):
        os.mkdir(name, mode)
        os.chmod(name, mode)


def ensure_dir(name: Name, mode: int = 0o700) -> None:
    """The folder and those above it; what exists is left as it is. Never used below a chat's folder (KEEP-11)."""
    for parent in (os.path.dirname(name), ""):
        try:
            return make_dir(name, mode)
        except (FileExistsError, FileNotFoundError) as error:
            if os.path.isdir(name):
                return None
            if isinstance(error, FileExistsError) or not parent:
                raise failure(error, name, "make the folder") from error
            ensure_dir(parent, mode)


def make_shared_dir(name: Name) -> None:
    """A folder as Claude makes it (0777 less the umask), and those above it."""
    missing = [os.fspath(name)]
    while not os.path.isdir(parent := os.path.dirname(missing[-1])):
        missing.append(parent)
    for folder in reversed(missing):
        try:
            step("mkdir", folder)
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        except OSError as error:
            raise_failure(error, folder, "make the folder")


def set_mode(name: Name, mode: int) -> None:
    """The file or folder has exactly that mode."""
    with _change("chmod", "set the mode of", name):
        os.chmod(name, mode)


def remove_dir(name: Name) -> None:
    """An empty folder goes; one that is gone, or not empty, stays so."""
    try:
        step("rmdir", name)
        os.rmdir(name)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            raise_failure(error, name, "remove")


def remove_tree(name: Name) -> None:
    """A folder and all below it, however deep. Goes by descriptors, so that no symbolic link is followed, whenever it
    takes a folder's place; the name itself must be no link. What another takes away meanwhile is no failure."""
    try:
        step("rmtree", name)
        top = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            while _empty_by_one_level(top):
                pass
        finally:
            os.close(top)
        os.rmdir(name)
    except FileNotFoundError:
        return
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            error = OSError(errno.EPERM, "it is a link, or no folder", str(name))
        raise_failure(error, name, "remove")


def _empty_by_one_level(top: int) -> bool:
    """Remove what stands directly in the folder; what a subfolder holds is lifted into it first, folders under new
    names, so that no more than two descriptors are open at any depth. Whether anything stood there."""
    with os.scandir(top) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with suppress(FileNotFoundError):
            if not is_folder:
                os.unlink(name, dir_fd=top)
                continue
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                os.unlink(name, dir_fd=top)  # a link took the folder's place
                continue
            try:
                _lift(below, top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)
    return bool(found)


def _lift(below: int, top: int) -> None:
    with os.scandir(below) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with suppress(FileNotFoundError):
            if is_folder:
                os.rename(name, f".lifted-{os.urandom(6).hex()}", src_dir_fd=below, dst_dir_fd=top)
            else:
                os.unlink(name, dir_fd=below)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """All of `data`, however short each write comes out (KEEP-17)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def opener(name: Name, flags: int) -> int:
    """Opens a file of keeper's as `open` asks an opener to: 0600, whatever the umask and whoever made it (KEEP-16)."""
    fd = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
        os.fchmod(fd, 0o600)
    return fd


def write_new(name: Name, parts: Iterable[bytes], like: int | None = None, sync: bool = True) -> None:
    """A new file of these bytes, on the disk when this returns; `name` must be free.

    `like` is a descriptor whose owner, mode, ACL and other extended attributes it takes; without it 0600.
    What was begun and failed is removed again."""
    with _change("create", "create", name):
        fd = opener(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for part in parts:
            step("write", name)
            write_all(fd, part)
        if like is not None:
            _take_after(fd, like)
        if sync:
            step("sync", name)
            os.fsync(fd)
    except OSError as error:
        drop(name)
        raise_failure(error, name, "write")
    finally:
        os.close(fd)


def make_file(name: Name) -> None:
    """An empty file of mode 0600, whatever the umask, for another to write into; one that is there is left alone."""
    with suppress(FileExistsError), _change("create", "create", name):
        os.close(opener(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def cut(name: Name, size: int) -> None:
    """A file of the vault ends at `size`, durable: what a killed run had begun behind it goes. Never a live file."""
    with _change("cut", "cut", name):
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)


def drop(name: Name) -> None:
    """A begun file is taken away; where even that fails, the next run finds it by its name."""
    with suppress(OSError):
        os.unlink(name)


def _take_after(fd: int, like: int) -> None:
    model, mine = os.fstat(like), os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (model.st_uid, model.st_gid):
        with suppress(PermissionError):
            os.fchown(fd, model.st_uid, model.st_gid)
    os.fchmod(fd, stat.S_IMODE(model.st_mode))
    names: list[str] = []
    with suppress(OSError):
        names = os.listxattr(like)
    for attribute in names:
        if attribute.startswith(("user.", "system.posix_acl")):
            os.setxattr(fd, attribute, os.getxattr(like, attribute))


def write_file(name: Name, data: bytes, sync: bool = True, beside: Name | None = None) -> None:
    """The file has these bytes, whole-old or whole-new at every instant, and durable if `sync`.

    It is begun as `.<name>.tmp` in the same folder (or as `beside/…` on the same volume); whoever holds the lock of
    what it is in may write it, so a name that a killed run left is taken over."""
    folder, base = os.path.split(name)
    beside = f"{beside or folder}/.{base}.tmp"
    try:
        write_new(beside, [data], sync=sync)
    except FileExistsError:
        drop(beside)
        write_new(beside, [data], sync=sync)
    try:
        replace(beside, name)
    except (OSError, KeeperError):
        drop(beside)
        raise
    if sync:
        sync_dir(os.path.dirname(name))


def append(name: Name, data: bytes, make: bool = False, sync: bool = True) -> None:
    """`data` behind the file's end, durable if `sync`. On failure the file is cut back to what it was."""
    try:
        step("append", name)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = opener(name, flags | os.O_CREAT) if make else os.open(name, flags)
    except OSError as error:
        raise_failure(error, name, "append to")
    try:
        size = os.fstat(fd).st_size
        try:
            write_all(fd, data)
            if sync:
                step("sync", name)
                os.fsync(fd)
        except OSError:
            os.ftruncate(fd, size)
            raise
    except OSError as error:
        raise_failure(error, name, "append to")
    finally:
        os.close(fd)


def clone(source: Name, name: Name) -> None:
    """`name`, an empty file of ours, shares the blocks of `source`. Raises DiskError where the volume cannot."""
    with _change("clone", "share the blocks of", source, name), open(source, "rb") as model, open(name, "r+b") as mine:
        fcntl.ioctl(mine, _FICLONE, model.fileno())


def touch(name: Name, time_ns: int) -> None:
    """The file's (or folder's) times are `time_ns`; a symbolic link is not followed."""
    with _change("touch", "set the times of", name):
        os.utime(name, ns=(time_ns, time_ns), follow_symlinks=False)


def sync_file(name: Name) -> None:
    """All that was written to the file, by anyone, is on the disk; of a folder, its names."""
    _barrier(name, os.fsync)


def sync_dir(name: Name) -> None:
    """The names in the folder are on the disk."""
    _barrier(name, os.fsync)


def sync_volume(name: Name) -> None:
    """Everything on the volume of `name` is on the disk: one barrier for many chats, cheaper than one each."""
    _barrier(name, _syncfs)


def _barrier(name: Name, sync: Callable[[int], object]) -> None:
    with _change("sync", "sync", name):
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)


def _syncfs(fd: int) -> None:
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextmanager
def lock(sentinel: Name, wait_s: float) -> Iterator[None]:
    """Hold the sentinel file's lock; it is never renamed or removed (KEEP-10). Raises Locked after `wait_s`."""
    try:
        fd = opener(sentinel, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise_failure(error, sentinel, "lock")
    try:
        deadline = time.monotonic() + wait_s
        pause_s = 0.001
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Locked(
                        f"{sentinel} is held by another process", "wait for it to finish, then run it again"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)
        yield
    finally:
        os.close(fd)
