"""The error of a bridge whose framework is not installed."""

from runmanager.errors import UsageError

__all__ = ["missing_package"]


def missing_package(package: str, error: ImportError) -> UsageError:
    """Return the error for a bridge to `package`, which could not be imported."""
    return UsageError(
        f"runmanager.integrations.{package} needs the package {package}, got {error}; "
        f"pip install 'torch-runmanager[{package}]'"
    )
