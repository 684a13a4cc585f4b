// The bench between the harness and a core with faults in it.
//
// `@name@` is filled in by `netlist.py`. The knobs are set through the harness, which shows every
// memory array; nothing in here writes them. Knob 0 chooses the fault from the next edge on, 0 none.
// Knob 1 makes the host hesitate: the chance, in sixteenths, that a channel of the register port
// waits a cycle. Knob 2 takes write strobes away; knob 3 is added to the bits of a register offset.

module core(
@ports@
);
  reg [31:0] knobs [0:3] /*verilator public_flat_rw*/;
  initial for (integer i = 0; i < 4; i = i + 1) knobs[i] = 0;

  reg [31:0] fault = 0, draw = 1;
  wire [31:0] left = draw ^ draw << 13, right = left ^ left >> 17;
  always @(posedge clk) begin
    fault <= knobs[0];
    draw <= rst ? 32'd2463534242 : right ^ right << 5;
  end

  // A request, once offered, stays; a response may wait for the host.
  reg aw_offered = 0, w_offered = 0, ar_offered = 0;
  wire aw_valid = s_axi_awvalid & (aw_offered | draw[3:0] >= knobs[1]);
  wire w_valid = s_axi_wvalid & (w_offered | draw[8:5] >= knobs[1]);
  wire ar_valid = s_axi_arvalid & (ar_offered | draw[13:10] >= knobs[1]);
  wire b_may = draw[18:15] >= knobs[1], r_may = draw[23:20] >= knobs[1];
  wire aw_ready, w_ready, ar_ready, b_valid, r_valid;
  assign s_axi_awready = aw_ready & aw_valid, s_axi_wready = w_ready & w_valid;
  assign s_axi_arready = ar_ready & ar_valid;
  assign s_axi_bvalid = b_valid & b_may, s_axi_rvalid = r_valid & r_may;

  // What the port promises: responses stay as they are until taken, all are OKAY.
  reg b_waits = 0, r_waits = 0;
  reg [31:0] r_held = 0;
  always @(posedge clk) begin
    aw_offered <= ~rst & aw_valid & ~aw_ready;
    w_offered <= ~rst & w_valid & ~w_ready;
    ar_offered <= ~rst & ar_valid & ~ar_ready;
    b_waits <= ~rst & b_valid & ~(s_axi_bready & b_may);
    r_waits <= ~rst & r_valid & ~(s_axi_rready & r_may);
    r_held <= s_axi_rdata;
    if (~rst) begin
      assert (~b_waits | b_valid);
      assert (~r_waits | r_valid & s_axi_rdata == r_held);
      assert (~b_valid | s_axi_bresp == 0);
      assert (~r_valid | s_axi_rresp == 0);
    end
  end

  @top@ faulty(
@connections@
  );
endmodule
