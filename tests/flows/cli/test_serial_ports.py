"""Serial ports and their likely boards, from what Linux tells of USB devices."""

from pathlib import Path

import pytest

from tilewright.flows.board.known_boards import known_boards
from tilewright.flows.cli import serial_ports as ports


def plug(folder: Path, port: str, **told: str) -> None:
    """Make the files of a USB device with a serial port, as Linux does."""
    usb = folder / "devices" / f"usb-{port}"
    place = usb / "1-1:1.0" / port
    place.mkdir(parents=True)
    for name, text in told.items():
        (usb / name).write_text(f"{text}\n", "utf-8")
    entry = folder / "tty" / port
    entry.mkdir(parents=True)
    (entry / "device").symlink_to(place)


@pytest.mark.parametrize(
    ("product", "likely"),
    [
        ("ULX3S FPGA 85K v3.1.7", ("ULX3S-85F",)),
        ("ULX3S FPGA", ("ULX3S-25F", "ULX3S-45F", "ULX3S-85F")),
        ("USB Serial", ()),
    ],
)
def test_a_board_is_known_by_the_name_of_its_port(tmp_path, product, likely):
    plug(tmp_path, "ttyUSB0", idVendor="0403", idProduct="6015", product=product)
    boards = ["ULX3S-25F", "ULX3S-45F", "ULX3S-85F", "OrangeCrab-25F"]
    (port,) = ports.serial_ports(boards, tmp_path / "tty")
    assert (port.path, port.boards) == ("/dev/ttyUSB0", likely)
    end = f", probably {' or '.join(likely)}" if likely else ""
    assert port.sentence == f"serial:///dev/ttyUSB0: {product}{end}"


def test_ports_without_usb_or_names(tmp_path):
    plug(tmp_path, "ttyS0")
    plug(tmp_path, "ttyACM1", idVendor="1209", idProduct="5af0")
    (port,) = ports.serial_ports([], tmp_path / "tty")
    assert port.sentence == "serial:///dev/ttyACM1: USB 1209:5af0"
    assert ports.serial_ports([], tmp_path / "none") == []


def test_doctor_names_the_ports(tilewright, monkeypatch, tmp_path):
    assert "ULX3S-85F" in known_boards()
    plug(tmp_path, "ttyUSB3", idVendor="0403", manufacturer="FER-RADIONA-EMARD",
         product="ULX3S FPGA 85K v3.1.7")  # fmt: skip
    monkeypatch.setattr(ports.serial_ports, "__defaults__", (tmp_path / "tty",))
    said = tilewright("doctor")
    assert (
        "serial:///dev/ttyUSB3: FER-RADIONA-EMARD ULX3S FPGA 85K v3.1.7, probably ULX3S-85F" in said
    )
