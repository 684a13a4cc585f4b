
// A memory with one read and one write port on one clock. Replace it by the macros of your process:
// leave this module out with `define TILEWRIGHT_OWN_RAM, and write one with these ports.
//
//   read   `read_data` changes in the cycle after `read_enable`, and holds otherwise
//   write  `write_enable[n]` writes bits n * GRANULE and up
//   both   no program reads a word in the cycle in which it is written: any value will do
`ifndef TILEWRIGHT_OWN_RAM
module tilewright_ram #(
  parameter DEPTH = 2,
  parameter WIDTH = 1,
  parameter GRANULE = WIDTH,
  parameter ADDRESS_BITS = 1
) (
  input wire clk,
  input wire read_enable,
  input wire [ADDRESS_BITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data,
  input wire [WIDTH/GRANULE-1:0] write_enable,
  input wire [ADDRESS_BITS-1:0] write_address,
  input wire [WIDTH-1:0] write_data
);
  reg [WIDTH-1:0] words [0:DEPTH-1];
  integer granule;

  // For a simulation; synthesis tools would unroll it. Chips with block RAM start with zeros anyway.
`ifndef SYNTHESIS
  integer row;
  initial
    for (row = 0; row < DEPTH; row = row + 1)
      words[row] = {WIDTH{1'b0}};
`endif

  always @(posedge clk) begin
    if (read_enable)
      read_data <= words[read_address];
    for (granule = 0; granule < WIDTH / GRANULE; granule = granule + 1)
      if (write_enable[granule])
        words[write_address][granule*GRANULE +: GRANULE] <= write_data[granule*GRANULE +: GRANULE];
  end
endmodule
`endif
