// Models of Gowin cells in exactly the modes that `gowin.py` uses, for simulation of netlists and
// for proofs.

// Signed or unsigned multiplier with all registers, that of A excepted, and one clock enable.
module tilewright_gowin_multiplier #(parameter BITS = 9, AREG = 1) (
    input [BITS-1:0] A, B, input ASIGN, BSIGN, CE, CLK, output [2*BITS-1:0] DOUT
);
  reg [BITS-1:0] a, b;
  wire [BITS-1:0] operand = AREG ? a : A;
  wire signed [2*BITS-1:0] left = {{BITS{ASIGN & operand[BITS-1]}}, operand};
  wire signed [2*BITS-1:0] right = {{BITS{BSIGN & b[BITS-1]}}, b};
  reg [2*BITS-1:0] pipeline, product;

  always @(posedge CLK)
    if (CE) begin
      a <= A;
      b <= B;
      pipeline <= left * right;
      product <= pipeline;
    end

  assign DOUT = product;
endmodule

module MULT9X9 (
    input [8:0] A, SIA, B, SIB, input ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET,
    output [17:0] DOUT, output [8:0] SOA, SOB
);
  parameter AREG = 1'b0, BREG = 1'b0, OUT_REG = 1'b0, PIPE_REG = 1'b0;
  parameter ASIGN_REG = 1'b0, BSIGN_REG = 1'b0, SOA_REG = 1'b0, MULT_RESET_MODE = "SYNC";
  tilewright_gowin_multiplier #(9, AREG) multiplier (A, B, ASIGN, BSIGN, CE, CLK, DOUT);
endmodule

module MULT18X18 (
    input [17:0] A, SIA, B, SIB, input ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET,
    output [35:0] DOUT, output [17:0] SOA, SOB
);
  parameter AREG = 1'b0, BREG = 1'b0, OUT_REG = 1'b0, PIPE_REG = 1'b0;
  parameter ASIGN_REG = 1'b0, BSIGN_REG = 1'b0, SOA_REG = 1'b0, MULT_RESET_MODE = "SYNC";
  tilewright_gowin_multiplier #(18, AREG) multiplier (A, B, ASIGN, BSIGN, CE, CLK, DOUT);
endmodule

// Block RAM: writes on port A, reads on port B; both of the same width, with the output register.
// A word that is read while it is written reads inverted, so that no design can rely on it.
module tilewright_gowin_ram #(parameter WIDTH = 36, LANE = 9) (
    input CLKA, CEA, CLKB, CEB, OCE, input [13:0] ADA, ADB, input [WIDTH-1:0] DI,
    output [WIDTH-1:0] DO
);
  localparam LANES = WIDTH / LANE;
  localparam UNUSED = WIDTH >= 32 ? 5 : WIDTH >= 16 ? 4 : WIDTH >= 8 ? 3 : WIDTH == 4 ? 2 :
                      WIDTH == 2 ? 1 : 0;
  wire [13-UNUSED:0] row_a = ADA[13:UNUSED];
  wire [13-UNUSED:0] row_b = ADB[13:UNUSED];
  wire [3:0] enables = LANES > 1 ? ADA[3:0] : 4'b0001;

  reg [WIDTH-1:0] rows [0:(1 << (14 - UNUSED)) - 1];
  reg [WIDTH-1:0] fetched, read;
  integer row;
  initial for (row = 0; row < 1 << (14 - UNUSED); row = row + 1) rows[row] = 0;

  integer lane;
  always @(posedge CLKA)
    if (CEA)
      for (lane = 0; lane < LANES; lane = lane + 1)
        if (enables[lane]) rows[row_a][lane*LANE+:LANE] <= DI[lane*LANE+:LANE];

  wire collision = CEA & |enables[LANES-1:0] & row_a == row_b;
  always @(posedge CLKB) begin
    if (CEB) fetched <= rows[row_b] ^ {WIDTH{collision}};
    if (OCE) read <= fetched;
  end

  assign DO = read;
endmodule

module SDPX9B (
    input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB, input [13:0] ADA, ADB,
    input [2:0] BLKSELA, BLKSELB, input [35:0] DI, output [35:0] DO
);
  parameter READ_MODE = 1'b0, RESET_MODE = "SYNC";
  parameter BIT_WIDTH_0 = 36, BIT_WIDTH_1 = 36, BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
  tilewright_gowin_ram #(BIT_WIDTH_0, 9) ram (
      CLKA, CEA, CLKB, CEB, OCE, ADA, ADB, DI[BIT_WIDTH_0-1:0], DO[BIT_WIDTH_0-1:0]);
endmodule

module SDPB (
    input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB, input [13:0] ADA, ADB,
    input [2:0] BLKSELA, BLKSELB, input [31:0] DI, output [31:0] DO
);
  parameter READ_MODE = 1'b0, RESET_MODE = "SYNC";
  parameter BIT_WIDTH_0 = 32, BIT_WIDTH_1 = 32, BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
  tilewright_gowin_ram #(BIT_WIDTH_0, BIT_WIDTH_0) ram (
      CLKA, CEA, CLKB, CEB, OCE, ADA, ADB, DI[BIT_WIDTH_0-1:0], DO[BIT_WIDTH_0-1:0]);
endmodule
