"""Labels of the recorded environment of a run: machine, software, code, load."""

__all__ = ["CODE", "FACTS", "MACHINE", "PYTHON"]

MACHINE = (
    ("host", "Host"),
    ("cpu_model", "CPU"),
    ("cores_text", "Cores"),
    ("torch_threads", "Torch threads"),
    ("device_name", "Devices used"),
    ("compute_capability", "Compute capability"),
    ("driver", "Driver"),
    ("cuda", "CUDA"),
    ("cudnn", "cuDNN"),
    ("cudnn_benchmark", "cuDNN benchmark"),
    ("cudnn_deterministic", "cuDNN deterministic"),
    ("tf32_matmul", "TF32 in matrix products"),
    ("tf32_cudnn", "TF32 in cuDNN"),
)
"""The fields of an `Environment` about the machine and its use, each with its label."""

PYTHON = (("python", "Python"),)

CODE = (("commit_text", "Commit"), ("commit_clean", "No uncommitted changes"))

_LOAD = (
    ("load_at_start", "Load at the start"),
    ("load_at_end", "Load at the end"),
    ("steal_share", "CPU time stolen (share)"),
    ("outside_cpu_share", "CPU time of others (share)"),
)

FACTS = (*MACHINE, *PYTHON, *CODE, *_LOAD)
