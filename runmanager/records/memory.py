"""The limit on the memory that a process may take, in words."""

__all__ = ["address_space_limit", "lacks_memory"]

_SIGNS = ("cannot allocate memory", "failed to map segment", "cannot apply additional memory protection")


def address_space_limit() -> str:
    """How much a process of this one's may map; empty where there is no limit."""
    import resource  # late: Windows has none, and is to be refused with a clear line

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "" if most == resource.RLIM_INFINITY else f"address space is limited to {most / 2**30:.1f} GiB (ulimit -v)"


def lacks_memory(error: BaseException) -> bool:
    """Whether an import failed for want of memory, which a library's loader tells in words alone."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _SIGNS)
