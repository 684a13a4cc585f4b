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

// Block RAM: writes on port A, reads on port B; both of the same width.
// A word that is read while it is written reads inverted, so that no design can rely on it.
// Yosys makes read-only memories of it, without the output register and with initial contents.
module DP16KD (
    input DIA0, DIA1, DIA2, DIA3, DIA4, DIA5, DIA6, DIA7, DIA8,
    input DIA9, DIA10, DIA11, DIA12, DIA13, DIA14, DIA15, DIA16, DIA17,
    input DIB0, DIB1, DIB2, DIB3, DIB4, DIB5, DIB6, DIB7, DIB8,
    input DIB9, DIB10, DIB11, DIB12, DIB13, DIB14, DIB15, DIB16, DIB17,
    input ADA0, ADA1, ADA2, ADA3, ADA4, ADA5, ADA6, ADA7, ADA8, ADA9, ADA10, ADA11, ADA12, ADA13,
    input ADB0, ADB1, ADB2, ADB3, ADB4, ADB5, ADB6, ADB7, ADB8, ADB9, ADB10, ADB11, ADB12, ADB13,
    input CLKA, CEA, WEA, OCEA, RSTA, CSA0, CSA1, CSA2,
    input CLKB, CEB, WEB, OCEB, RSTB, CSB0, CSB1, CSB2,
    output DOA0, DOA1, DOA2, DOA3, DOA4, DOA5, DOA6, DOA7, DOA8,
    output DOA9, DOA10, DOA11, DOA12, DOA13, DOA14, DOA15, DOA16, DOA17,
    output DOB0, DOB1, DOB2, DOB3, DOB4, DOB5, DOB6, DOB7, DOB8,
    output DOB9, DOB10, DOB11, DOB12, DOB13, DOB14, DOB15, DOB16, DOB17
);
  parameter DATA_WIDTH_A = 18;
  parameter DATA_WIDTH_B = 18;
  parameter REGMODE_A = "NOREG";
  parameter REGMODE_B = "NOREG";
  parameter RESETMODE = "SYNC";
  parameter ASYNC_RESET_RELEASE = "SYNC";
  parameter CLKAMUX = "CLKA";
  parameter CLKBMUX = "CLKB";
  parameter WRITEMODE_A = "NORMAL";
  parameter WRITEMODE_B = "NORMAL";
  parameter CSDECODE_A = "0b000";
  parameter CSDECODE_B = "0b000";
  parameter GSR = "ENABLED";
  parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0;
  parameter [319:0] INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0;
  parameter [319:0] INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0;
  parameter [319:0] INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F = 0;
  parameter [319:0] INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0;
  parameter [319:0] INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0;
  parameter [319:0] INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0;
  parameter [319:0] INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0;
  parameter [319:0] INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0;
  parameter [319:0] INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0;
  parameter [319:0] INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0;
  parameter [319:0] INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0;
  parameter [319:0] INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0;
  parameter [319:0] INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0;
  parameter [319:0] INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0;
  parameter [319:0] INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;

  // Each group of 20 bits holds 18; words of less than 9 bits would lie otherwise.
  localparam [64*320-1:0] INITIAL = {
      INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
      INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30,
      INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
      INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20,
      INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
      INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
      INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
      INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00};

  localparam LANE = DATA_WIDTH_A < 9 ? DATA_WIDTH_A : 9;
  localparam LANES = DATA_WIDTH_A / LANE;
  localparam UNUSED = DATA_WIDTH_A == 36 ? 5 : DATA_WIDTH_A == 18 ? 4 : DATA_WIDTH_A == 9 ? 3 :
                      DATA_WIDTH_A == 4 ? 2 : DATA_WIDTH_A == 2 ? 1 : 0;

  wire [35:0] data = {
      DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
      DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
      DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
      DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
  wire [13:0] address_a = {
      ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
  wire [13:0] address_b = {
      ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
  wire [13-UNUSED:0] row_a = address_a[13:UNUSED];
  wire [13-UNUSED:0] row_b = address_b[13:UNUSED];
  wire [3:0] enables = LANES > 1 ? address_a[3:0] : 4'b0001;

  reg [DATA_WIDTH_A-1:0] rows [0:(1 << (14 - UNUSED)) - 1];
  reg [DATA_WIDTH_A-1:0] fetched, read;
  integer row, part;
  initial
    for (row = 0; row < 1 << (14 - UNUSED); row = row + 1)
      if (INITIAL == 0) rows[row] = 0;
      else
        for (part = row * LANES; part < (row + 1) * LANES; part = part + 1)
          rows[row][part%LANES*LANE+:LANE] = INITIAL[part/2*20+part%2*9+:LANE];

  integer lane;
  always @(posedge CLKA)
    if (CEA & WEA)
      for (lane = 0; lane < LANES; lane = lane + 1)
        if (enables[lane]) rows[row_a][lane*LANE+:LANE] <= data[lane*LANE+:LANE];

  wire collision = CEA & WEA & |enables[LANES-1:0] & row_a == row_b;
  always @(posedge CLKB) begin
    if (CEB & ~WEB) fetched <= rows[row_b] ^ {DATA_WIDTH_A{collision}};
    if (OCEB) read <= fetched;
  end

  wire [35:0] out = REGMODE_B == "OUTREG" ? read : fetched;
  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9,
          DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} = out[17:0];
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9,
          DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0} =
      DATA_WIDTH_B == 36 ? out[35:18] : out[17:0];
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
