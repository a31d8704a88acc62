"""The storage of a sweep: a database that Optuna writes, and one lock for all who change the queue in it."""

from __future__ import annotations

import contextlib
import importlib.util
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import InputError, StorageError
from sightline.io.atomic import make_parent
from sightline.io.run_lock import locked

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

_LOCK = "lock"
# Seconds that SQLite waits for another process, and how often tables are made that another worker may be making.
_BUSY, _OPENINGS = 60.0, 5


class Store:
    """A study in a database, made where it is not there.

    Args:
        url: of the database; name: of the study.
        beat, dead_after: seconds between heartbeats, and without one until a trial counts as left alone.
        make: the study where it is not there; else that is refused.

    Attributes:
        storage, study: Optuna's; study_id: in the storage.

    Raises:
        InputError: the URL is none, what talks to such a database is not installed, or there is no study.
        StorageError: the database cannot be reached or written.
    """

    def __init__(self, url: str, name: str, *, beat: int, dead_after: int, make: bool = True) -> None:
        require_optuna()
        self.url, self._file, self._looks = url, sqlite_file(url), not make
        none = f"{without_password(url)}: holds no sweep {name}, which was not begun (begin it with: sightline sweep)"
        if self._file is not None:
            if not make and not (self._file.exists() and self._file.stat().st_size):
                raise InputError(none)
            make_parent(self._file)
        with self.told(), self._locked_file():
            self.storage = _open(url, beat, dead_after)
            try:
                self.study = _study(self.storage, name, make)
            except KeyError:
                raise InputError(none) from None
        self.study_id = self.storage.get_study_id_from_name(name)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What the storage refuses inside becomes a line."""
        import optuna
        from sqlalchemy import exc

        try:
            yield
        except (optuna.exceptions.OptunaError, exc.SQLAlchemyError) as error:
            cause = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) else None
            said = str(cause or error).splitlines()[0][:200]
            raise StorageError(f"{without_password(self.url)}: the storage of the sweep fails ({said})") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other worker changes the queue; the lock goes with its holder, killed or not."""
        with self.told(), self._locked_file(), contextlib.ExitStack() as held:
            if self._file is None:
                import sqlalchemy

                columns = [sqlalchemy.column(name) for name in ("study_id", "key", "value_json")]
                table = sqlalchemy.table("study_user_attributes", *columns)
                mine = (table.c.study_id == self.study_id) & (table.c.key == _LOCK)
                connection = held.enter_context(self.storage.engine.begin())
                connection.execute(sqlalchemy.select(table.c.value_json).where(mine).with_for_update()).all()
            yield

    @contextlib.contextmanager
    def _locked_file(self) -> Iterator[None]:
        if self._file is None:
            yield
            return
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(self._file.with_name(f".{self._file.name}.writing-lock")))
            except OSError as error:
                if self._looks:
                    # Nothing is written, so that there need be no lock either: a folder may be read-only.
                    yield
                    return
                raise StorageError(f"{self._file}: cannot be written ({error.strerror or error})") from error
            yield


def require_optuna() -> None:
    """Refuse to go on where Optuna is not installed, and silence what it says of itself."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError('a sweep needs Optuna; install it with: pip install ".[sweep]" (or: pip install optuna)')
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Heartbeats outside of `optimize` are what this module is about.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage")


def without_password(url: str) -> str:
    """A database URL as it may be shown and written down."""
    import sqlalchemy
    from sqlalchemy import exc

    try:
        return sqlalchemy.make_url(url)._replace(password=None).render_as_string(hide_password=False)
    except exc.ArgumentError:
        return url.partition("://")[0]


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None of another one.

    Raises:
        InputError: it is no URL of a database, or one in memory, which no other worker sees.
    """
    import sqlalchemy
    from sqlalchemy import exc

    try:
        found = sqlalchemy.make_url(url)
    except exc.ArgumentError:
        raise InputError(
            "storage: is no URL of a database (expected as sqlite:///FILE or postgresql://USER@HOST/NAME)"
        ) from None
    if found.get_backend_name() != "sqlite":
        return None
    if not found.database or found.database == ":memory:":
        raise InputError("storage: a database in memory is seen by no other worker (expected sqlite:///FILE)")
    return Path(found.database)


def _open(url: str, beat: int, dead_after: int) -> RDBStorage:
    """The storage, its tables made where it is new.

    Raises:
        InputError: the package that talks to such a database is not there.
    """
    import optuna
    from sqlalchemy import exc

    waits = {"connect_args": {"timeout": _BUSY}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    for attempt in range(1, _OPENINGS + 1):
        try:
            return optuna.storages.RDBStorage(
                url, engine_kwargs=waits, heartbeat_interval=beat, grace_period=dead_after
            )
        except (ImportError, exc.NoSuchModuleError) as error:
            said = error.__cause__ or error
            raise InputError(f"storage {without_password(url)}: cannot be talked to here ({said})") from None
        except (optuna.exceptions.StorageInternalError, exc.SQLAlchemyError):
            # Of two that make the tables at once, one is refused.
            if attempt == _OPENINGS or sqlite_file(url) is not None:
                raise
            time.sleep(0.2 * attempt)
    raise AssertionError


def _study(storage: RDBStorage, name: str, make: bool) -> Study:
    import optuna

    if not make:
        return optuna.load_study(study_name=name, storage=storage)
    study = optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
    if _LOCK not in study.user_attrs:
        # The row that is locked; where two put it there, one of them has no effect.
        study.set_user_attr(_LOCK, True)
    return study
