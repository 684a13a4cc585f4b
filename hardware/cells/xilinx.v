// Models of Xilinx' cells in exactly the modes that `xilinx.py` uses, for simulation of netlists and
// for proofs. Yosys models all others.
`timescale 1ns / 1ps

// Signed multiplier with all of its registers and without resets.
module DSP48E1 (
    input [29:0] A, input [17:0] B, input [47:0] C, input [24:0] D,
    input [4:0] INMODE, input [3:0] ALUMODE, input [6:0] OPMODE, input [2:0] CARRYINSEL,
    input CLK, CARRYIN, CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED,
    input CEINMODE, CEM, CEP,
    input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
    output [47:0] P
);
  parameter integer ACASCREG = 1, ADREG = 1, ALUMODEREG = 1, AREG = 1, BCASCREG = 1, BREG = 1;
  parameter integer CARRYINREG = 1, CARRYINSELREG = 1, CREG = 1, DREG = 1, INMODEREG = 1;
  parameter integer MREG = 1, OPMODEREG = 1, PREG = 1;
  parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT";
  parameter USE_MULT = "MULTIPLY", USE_SIMD = "ONE48", USE_DPORT = "FALSE";

  reg signed [24:0] a;
  reg signed [17:0] b;
  reg signed [42:0] m;
  reg signed [47:0] p;
  always @(posedge CLK) begin
    if (CEA2) a <= A[24:0];
    if (CEB2) b <= B;
    if (CEM) m <= a * b;
    if (CEP) p <= m;
  end
  assign P = p;
endmodule

module DSP48E2 (
    input [29:0] A, input [17:0] B, input [47:0] C, input [26:0] D,
    input [4:0] INMODE, input [3:0] ALUMODE, input [8:0] OPMODE, input [2:0] CARRYINSEL,
    input CLK, CARRYIN, CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED,
    input CEINMODE, CEM, CEP,
    input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
    output [47:0] P
);
  parameter integer ACASCREG = 1, ADREG = 1, ALUMODEREG = 1, AREG = 1, BCASCREG = 1, BREG = 1;
  parameter integer CARRYINREG = 1, CARRYINSELREG = 1, CREG = 1, DREG = 1, INMODEREG = 1;
  parameter integer MREG = 1, OPMODEREG = 1, PREG = 1;
  parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT", USE_MULT = "MULTIPLY", USE_SIMD = "ONE48";

  reg signed [26:0] a;
  reg signed [17:0] b;
  reg signed [44:0] m;
  reg signed [47:0] p;
  always @(posedge CLK) begin
    if (CEA2) a <= A[26:0];
    if (CEB2) b <= B;
    if (CEM) m <= a * b;
    if (CEP) p <= m;
  end
  assign P = p;
endmodule

// Block RAM: reads on port A, writes on port B; both of the same width, with output registers.
// A word that is read while it is written reads inverted, so that no design can rely on it.
module RAMB18E1 (
    input [13:0] ADDRARDADDR, ADDRBWRADDR,
    input [15:0] DIADI, DIBDI, input [1:0] DIPADIP, DIPBDIP,
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
    input [1:0] WEA, input [3:0] WEBWE,
    output [15:0] DOADO, DOBDO, output [1:0] DOPADOP, DOPBDOP
);
  parameter RAM_MODE = "TDP", WRITE_MODE_A = "WRITE_FIRST", WRITE_MODE_B = "WRITE_FIRST";
  parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0;
  parameter integer DOA_REG = 0, DOB_REG = 0;

  localparam WIDTH = READ_WIDTH_A;
  localparam BITS = WIDTH < 8 ? WIDTH : 8;
  localparam LANES = WIDTH < 9 ? 1 : WIDTH / 9;
  localparam UNUSED = WIDTH == 36 ? 5 : WIDTH == 18 ? 4 : WIDTH == 9 ? 3 :
                      WIDTH == 4 ? 2 : WIDTH == 2 ? 1 : 0;

  wire [31:0] data = WIDTH == 36 ? {DIBDI, DIADI} : {16'b0, DIBDI};
  wire [3:0] parity = WIDTH == 36 ? {DIPBDIP, DIPADIP} : {2'b0, DIPBDIP};
  wire [13-UNUSED:0] written = ADDRBWRADDR[13:UNUSED];
  wire [13-UNUSED:0] taken = ADDRARDADDR[13:UNUSED];

  // Each lane in nine bits, its parity on top.
  reg [35:0] rows [0:(1 << (14 - UNUSED)) - 1];
  reg [35:0] fetched, read;
  integer row;
  initial for (row = 0; row < 1 << (14 - UNUSED); row = row + 1) rows[row] = 0;

  integer lane;
  always @(posedge CLKBWRCLK)
    if (ENBWREN)
      for (lane = 0; lane < LANES; lane = lane + 1)
        if (WEBWE[lane]) begin
          rows[written][9*lane+:8] <= data[8*lane+:8] & ((1 << BITS) - 1);
          rows[written][9*lane+8] <= parity[lane];
        end

  wire collision = ENBWREN & |WEBWE[LANES-1:0] & written == taken;
  always @(posedge CLKARDCLK) begin
    if (ENARDEN) fetched <= rows[taken] ^ {36{collision}};
    if (REGCEAREGCE) read <= fetched;
  end

  assign {DOPBDOP[1], DOBDO[15:8], DOPBDOP[0], DOBDO[7:0],
          DOPADOP[1], DOADO[15:8], DOPADOP[0], DOADO[7:0]} = read;
endmodule

module RAMB18E2 (
    input [13:0] ADDRARDADDR, ADDRBWRADDR,
    input [15:0] DINADIN, DINBDIN, input [1:0] DINPADINP, DINPBDINP,
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB, ADDRENA, ADDRENB, SLEEP,
    input [1:0] WEA, input [3:0] WEBWE,
    output [15:0] DOUTADOUT, DOUTBDOUT, output [1:0] DOUTPADOUTP, DOUTPBDOUTP
);
  parameter WRITE_MODE_A = "WRITE_FIRST", WRITE_MODE_B = "WRITE_FIRST";
  parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0;
  parameter integer DOA_REG = 0, DOB_REG = 0;

  RAMB18E1 #(
      .READ_WIDTH_A(READ_WIDTH_A), .READ_WIDTH_B(READ_WIDTH_B),
      .WRITE_WIDTH_A(WRITE_WIDTH_A), .WRITE_WIDTH_B(WRITE_WIDTH_B),
      .DOA_REG(DOA_REG), .DOB_REG(DOB_REG)
  ) same (
      .ADDRARDADDR(ADDRARDADDR), .ADDRBWRADDR(ADDRBWRADDR),
      .DIADI(DINADIN), .DIBDI(DINBDIN), .DIPADIP(DINPADINP), .DIPBDIP(DINPBDINP),
      .CLKARDCLK(CLKARDCLK), .CLKBWRCLK(CLKBWRCLK), .ENARDEN(ENARDEN), .ENBWREN(ENBWREN),
      .REGCEAREGCE(REGCEAREGCE), .REGCEB(REGCEB), .RSTRAMARSTRAM(RSTRAMARSTRAM),
      .RSTRAMB(RSTRAMB), .RSTREGARSTREG(RSTREGARSTREG), .RSTREGB(RSTREGB),
      .WEA(WEA), .WEBWE(WEBWE),
      .DOADO(DOUTADOUT), .DOBDO(DOUTBDOUT), .DOPADOP(DOUTPADOUTP), .DOPBDOP(DOUTPBDOUTP)
  );
endmodule

// Register, initially 0.
module FDRE (input C, CE, R, D, output reg Q);
  parameter INIT = 1'b0;
  initial Q = INIT;
  always @(posedge C) if (R) Q <= 0; else if (CE) Q <= D;
endmodule
