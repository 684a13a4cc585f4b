// Adders as carry chains of an ECP5, for Yosys' `techmap`, with fewer cells than Yosys' own map.
//
// A chain cannot begin with a constant, nor can its last carry leave it: nextpnr adds a cell, which
// is two look-up tables, at each end. Here half a cell does either. The first half passes nothing
// on and generates the carry that enters; if it is constant, the half generates the carry of the
// lowest bit instead, where that saves a cell. Other carries are recomputed from the sum.
(* techmap_celltype = "$alu" *)
module ecp5_alu (A, B, CI, BI, X, Y, CO);
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter A_WIDTH = 1;
  parameter B_WIDTH = 1;
  parameter Y_WIDTH = 1;
  parameter _TECHMAP_CONSTMSK_CI_ = 0;
  parameter _TECHMAP_CONSTVAL_CI_ = 0;
  parameter _TECHMAP_CONSTMSK_BI_ = 0;
  parameter _TECHMAP_CONSTVAL_BI_ = 0;

  (* force_downto *) input [A_WIDTH-1:0] A;
  (* force_downto *) input [B_WIDTH-1:0] B;
  input CI, BI;
  (* force_downto *) output [Y_WIDTH-1:0] X, Y, CO;

  // Short sums are smaller in look-up tables.
  wire _TECHMAP_FAIL_ = Y_WIDTH <= 4;

  (* force_downto *) wire [Y_WIDTH-1:0] a, b;
  \$pos #(.A_SIGNED(A_SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(Y_WIDTH)) extend_a (.A(A), .Y(a));
  \$pos #(.A_SIGNED(B_SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)) extend_b (.A(B), .Y(b));

  localparam CONSTANT = _TECHMAP_CONSTMSK_CI_ && _TECHMAP_CONSTMSK_BI_;
  // Few sums need their last carry, which would take half a cell more.
  localparam SKIPS = CONSTANT && Y_WIDTH % 2 == 0;
  // The carry of the lowest bit, for b and a from 11 down to 00.
  localparam [3:0] LOWEST =
      _TECHMAP_CONSTVAL_BI_ ? (_TECHMAP_CONSTVAL_CI_ ? 4'b1011 : 4'b0010)
                            : (_TECHMAP_CONSTVAL_CI_ ? 4'b1110 : 4'b1000);
  localparam FIRST = SKIPS ? 1 : 0;
  localparam CELLS = (Y_WIDTH - FIRST + 3) / 2;

  // Halves of the chain: the first one, those of the bits from FIRST on, the last carry.
  (* force_downto *) wire [2*CELLS-1:0] half_a =
      {{2*CELLS{1'b1}}, a[Y_WIDTH-1:FIRST], SKIPS ? a[0] : CI};
  (* force_downto *) wire [2*CELLS-1:0] half_b =
      {{2*CELLS{1'b1}}, b[Y_WIDTH-1:FIRST], SKIPS ? b[0] : 1'b1};
  (* force_downto *) wire [2*CELLS-1:0] sums;
  (* force_downto *) wire [CELLS-1:0] carries;

  localparam LAST = Y_WIDTH - FIRST + 1;
  genvar i;
  generate if (Y_WIDTH > 4) begin
    for (i = 0; i < CELLS; i = i + 1) begin : pair
      localparam [15:0] TABLE_0 = i == 0 ? {12'h000, SKIPS ? LOWEST : 4'b1010}
                                         : 2 * i < LAST ? 16'h96AA : 16'h0000;
      localparam [15:0] TABLE_1 = 2 * i + 1 < LAST ? 16'h96AA : 16'h0000;
      if (i == 0)
        CCU2C #(.INIT0(TABLE_0), .INIT1(TABLE_1), .INJECT1_0("NO"), .INJECT1_1("NO")) cell_ (
            .A0(half_a[0]), .B0(half_b[0]), .C0(1'b1), .D0(1'b1),
            .A1(half_a[1]), .B1(half_b[1]), .C1(BI), .D1(1'b1),
            .S0(sums[0]), .S1(sums[1]), .COUT(carries[0]));
      else
        CCU2C #(.INIT0(TABLE_0), .INIT1(TABLE_1), .INJECT1_0("NO"), .INJECT1_1("NO")) cell_ (
            .CIN(carries[i-1]),
            .A0(half_a[2*i]), .B0(half_b[2*i]), .C0(BI), .D0(1'b1),
            .A1(half_a[2*i+1]), .B1(half_b[2*i+1]), .C1(BI), .D1(1'b1),
            .S0(sums[2*i]), .S1(sums[2*i+1]), .COUT(carries[i]));
    end
    if (SKIPS) assign Y[0] = a[0] ^ b[0] ^ BI ^ CI;
    assign Y[Y_WIDTH-1:FIRST] = sums[LAST-1:1];
    assign X = a ^ b ^ {Y_WIDTH{BI}};
    assign CO = {sums[LAST], Y[Y_WIDTH-1:1] ^ X[Y_WIDTH-1:1]};
  end endgenerate
endmodule
