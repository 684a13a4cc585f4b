"""A large RAM for the simulator, in Verilog, where a description in Amaranth lists every word."""

from amaranth.hdl import ClockSignal, Instance, Module

from ..ram import Ram

MODULE = "simulated_ram"

VERILOG = f"""
module {MODULE} #(parameter WORDS = 1, parameter BITS = 1, parameter LANES = 1) (
  input clk,
  input read_enable,
  input [BITS-1:0] read_address,
  output reg [8*LANES-1:0] read_data,
  input [LANES-1:0] write_enable,
  input [BITS-1:0] write_address,
  input [8*LANES-1:0] write_data
);
  reg [8*LANES-1:0] words [0:WORDS-1];
  reg [8*LANES-1:0] fetched;
  reg was_read;
  wire [8*LANES-1:0] mask;
  genvar lane;
  generate
    for (lane = 0; lane < LANES; lane = lane + 1)
      assign mask[8*lane +: 8] = {{8{{write_enable[lane]}}}};
  endgenerate
  always @(posedge clk) begin
    was_read <= read_enable;
    if (read_enable) fetched <= words[read_address];
    if (was_read) read_data <= fetched;
    if (|write_enable)
      words[write_address] <= (words[write_address] & ~mask) | (write_data & mask);
  end
endmodule
"""
"""To be added to the Verilog of a design."""


class SimulatedRam(Ram):
    """A `Ram` with a write enable per byte; see there."""

    def __init__(self, depth: int, width: int):
        super().__init__(depth, width, granularity=8)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.words = Instance(
            MODULE,
            p_WORDS=self.depth,
            p_BITS=len(self.read_address),
            p_LANES=self.width // 8,
            i_clk=ClockSignal(),
            i_read_enable=self.read_enable,
            i_read_address=self.read_address,
            o_read_data=self.read_data,
            i_write_enable=self._enables(),
            i_write_address=self.write_address,
            i_write_data=self.write_data,
        )
        return m
