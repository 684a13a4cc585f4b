// Models of ECP5 cells in exactly the modes that `ecp5.py` uses, for simulation of netlists and for
// proofs.
`timescale 1ns / 1ps

// Signed or unsigned 18x18 multiplier; every register on CLK0, without reset.
module MULT18X18D (
    input A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15, A16, A17,
    input B0, B1, B2, B3, B4, B5, B6, B7, B8, B9, B10, B11, B12, B13, B14, B15, B16, B17,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK0, CLK1, CLK2, CLK3, CE0, CE1, CE2, CE3, RST0, RST1, RST2, RST3,
    output P0, P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11, P12, P13, P14, P15, P16, P17,
    output P18, P19, P20, P21, P22, P23, P24, P25, P26, P27, P28, P29, P30, P31, P32, P33, P34, P35
);
  parameter REG_INPUTA_CLK = "NONE";
  parameter REG_INPUTA_CE = "CE0";
  parameter REG_INPUTA_RST = "RST0";
  parameter REG_INPUTB_CLK = "NONE";
  parameter REG_INPUTB_CE = "CE0";
  parameter REG_INPUTB_RST = "RST0";
  parameter REG_PIPELINE_CLK = "NONE";
  parameter REG_PIPELINE_CE = "CE0";
  parameter REG_PIPELINE_RST = "RST0";
  parameter REG_OUTPUT_CLK = "NONE";
  parameter REG_OUTPUT_CE = "CE0";
  parameter REG_OUTPUT_RST = "RST0";

  wire ce_a = REG_INPUTA_CE == "CE1" ? CE1 : CE0;
  wire ce_b = REG_INPUTB_CE == "CE1" ? CE1 : CE0;
  wire ce_pipeline = REG_PIPELINE_CE == "CE1" ? CE1 : CE0;
  wire ce_output = REG_OUTPUT_CE == "CE1" ? CE1 : CE0;

  wire [17:0] in_a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
  wire [17:0] in_b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
  reg [17:0] a, b;
  wire signed [35:0] left = {{18{SIGNEDA & a[17]}}, a};
  wire signed [35:0] right = {{18{SIGNEDB & b[17]}}, b};
  reg [35:0] pipeline, product;

  always @(posedge CLK0) begin
    if (ce_a) a <= in_a;
    if (ce_b) b <= in_b;
    if (ce_pipeline) pipeline <= left * right;
    if (ce_output) product <= pipeline;
  end

  assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
          P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = product;
endmodule

// Two bits of a carry chain behind look-up tables of four inputs.
module CCU2C (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
  parameter [15:0] INIT0 = 16'h0000;
  parameter [15:0] INIT1 = 16'h0000;
  parameter INJECT1_0 = "YES";
  parameter INJECT1_1 = "YES";

  wire value_0 = INIT0[{D0, C0, B0, A0}];
  wire value_1 = INIT1[{D1, C1, B1, A1}];
  wire carry = value_0 ? CIN : INIT0[{2'b00, B0, A0}];

  assign S0 = value_0 ^ CIN;
  assign S1 = value_1 ^ carry;
  assign COUT = value_1 ? carry : INIT1[{2'b00, B1, A1}];
endmodule
