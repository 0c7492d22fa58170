"""Files at an address: ``s3://``, ``gs://``, ``http://`` and whatever else fsspec has a driver for.

Credentials are the drivers' own business: they find them where the provider's tools do, and fsspec's settings
(``FSSPEC_S3_ANON=true``, ``~/.config/fsspec``) reach them too. Nothing here is kept between processes: drivers do not
survive a fork, and fsspec makes a new one in each.
"""

import errno
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from mldecoder.errors import ConfigError, StorageError

__all__ = ["download", "file_name", "is_url", "join", "read", "read_range", "shown"]

TRIES = 5
"""How often a request is made before it counts as failed."""
PAUSE = 0.5
"""Seconds before the second try; each later pause is twice the one before."""
_CONNECT, _SILENCE = 30, 60  # seconds until a server that does not answer, or stops in the middle, counts as gone
_PACKAGES = {"http": "aiohttp", "https": "aiohttp"}
_Result = TypeVar("_Result")


def is_url(source: object) -> bool:
    """Whether a source is an address and not a path.

    Example:
        >>> is_url("s3://bucket/shards"), is_url("photos/list.csv")
        (True, False)
    """
    scheme, mark, _ = str(source).partition("://")
    return bool(mark) and len(scheme) > 1 and scheme.replace("+", "").isalnum()  # one letter is a drive of Windows


def join(url: str, name: str) -> str:
    """The address of a file below another address; what stands behind a ``?`` (a signature) stays behind.

    Example:
        >>> join("https://host/set/?key=1", "a.tar")
        'https://host/set/a.tar?key=1'
    """
    parts = urlsplit(url)
    if not parts.query:
        return f"{url.rstrip('/')}/{name}"
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def file_name(url: str) -> str:
    """The last part of an address, without its query."""
    return PurePosixPath(urlsplit(url).path).name if "?" in url else url.rstrip("/").rpartition("/")[2]


def shown(url: str) -> str:
    """An address as it may be printed: without signature and password.

    Example:
        >>> shown("https://me:secret@host/a.tar?key=1")
        'https://host/a.tar'
    """
    start, mark, rest = url.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{start}{mark}{host.rpartition('@')[2]}{slash}{path}"


def read(url: str) -> bytes:
    """A whole small file."""
    return bytes(_patiently(url, lambda: _driver(url).cat_file(url)))


def read_range(url: str, start: int, size: int) -> bytes:
    """Some bytes from the middle of a file."""
    content = bytes(_patiently(url, lambda: _driver(url).cat_file(url, start=start, end=start + size)))
    if len(content) > size:
        raise StorageError(
            f"{shown(url)} is served whole where a range was asked for. Set data.options.shard_read=cache."
        )
    return content


def download(url: str, path: Path) -> None:
    """Copy a file here, in blocks."""
    _patiently(url, lambda: _driver(url).get_file(url, str(path)))


def _driver(url: str) -> Any:  # noqa: ANN401 - fsspec has no types
    """The file system of an address, made anew in each process."""
    scheme = url.partition("://")[0]
    try:
        import fsspec

        if scheme in {"http", "https"}:
            from aiohttp import ClientTimeout

            # the driver's own limit of five minutes is for the whole of a file, however large
            timeout = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
            return fsspec.filesystem(scheme, client_kwargs={"timeout": timeout})
        return fsspec.core.url_to_fs(url)[0]
    except ImportError as error:
        raise ConfigError(f"{scheme}:// needs a driver that is not installed ({error}). {_advice(scheme)}") from None
    except ValueError as error:
        raise ConfigError(f"{shown(url)} is no address that can be read ({error}).") from None


def _advice(scheme: str) -> str:
    try:
        from fsspec.registry import known_implementations
    except ImportError:
        return 'Run: pip install "mldecoder[scale]"'
    package = known_implementations.get(scheme, {}).get("class", "").partition(".")[0]
    package = _PACKAGES.get(scheme, package)
    return f"Run: pip install {package}" if package not in {"", "fsspec"} else "Install what it names."


def _patiently(url: str, request: Callable[[], _Result]) -> _Result:
    """Try a few times; a file that is not there, or may not be read, is not asked for again."""
    where = shown(url)
    for number in range(TRIES):
        try:
            return request()
        except (ConfigError, StorageError, KeyboardInterrupt):
            raise
        except FileNotFoundError:
            raise StorageError(f"{where} is not there. Check the address, or copy the shards again.") from None
        except PermissionError as error:
            raise StorageError(f"{where} may not be read ({_reason(error)}). Check the credentials.") from None
        except Exception as error:  # each driver raises the errors of its own library
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise StorageError(
                    f"The disk is full while fetching {where}. Lower data.options.shard_cache, or set MLDECODER_CACHE "
                    f"to a folder on another disk."
                ) from None
            if getattr(error, "status", 0) in {401, 403} or "credentials" in str(error).lower():
                raise StorageError(f"{where} may not be read ({_reason(error)}). Check the credentials.") from None
            if number + 1 == TRIES:
                raise StorageError(
                    f"{where} could not be read in {TRIES} tries ({_reason(error)}). Check the network and the address."
                ) from None
        time.sleep(PAUSE * 2**number)
    raise StorageError(f"{where} was never asked for.")  # TRIES is at least 1


def _reason(error: Exception) -> str:
    """One line, without the address, which may hold a signature."""
    words = getattr(error, "message", "") or str(error)
    status = getattr(error, "status", None)
    text = " ".join(str(words).split()) or type(error).__name__
    return f"status {status}: {text}" if status else text
