// A look-up table as one operator, which simulates fast; all other cells have models of their own.
module LUT4(input A, B, C, D, output Z);
  parameter [15:0] INIT = 0;
  \$lut #(.WIDTH(4), .LUT(INIT)) _TECHMAP_REPLACE_ (.A({D, C, B, A}), .Y(Z));
endmodule
