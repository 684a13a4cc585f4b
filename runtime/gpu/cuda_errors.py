"""Errors of NVIDIA's driver: those with a remedy, and those of a single kernel."""

from ...errors import DeviceError

REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory of the GPU, or compile a smaller network",
    "CUDA_ERROR_NO_DEVICE": "this machine has no GPU of NVIDIA; `--device host` runs without one",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "install a newer driver of the GPU",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the machine after an update of the driver",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the GPU's memory is defective; use another GPU",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "this is a fault of Tilewright: report it with the model",
}
"""Remedies by the name of an error; for the others there is the driver's own text."""

INVALID_CODE = "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_INVALID_IMAGE"
"""Errors of one kernel, without which the others run."""


class CudaError(DeviceError):
    """A function of the driver failed; `name` is that of the error."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name
