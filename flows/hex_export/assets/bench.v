// Runs an exported network on the core, in any simulator with delays, and compares main memory.
//
//   $ iverilog -g2005 bench.v core.v && ./a.out
//   $ verilator --binary --timing -Wno-fatal --top-module bench bench.v core.v && obj_dir/Vbench
//
// Prints `PASS` or `FAIL`. Replace the memory and the host by those of your system: `runs.hex` has
// four words for each program that the host starts, and `memory.hex` what memory holds before.
`timescale 1ns / 1ps

module bench;
  `include "network.vh"

  localparam BUS_BYTES = BUS_BITS / 8;
  localparam WORD_SHIFT = $clog2(BUS_BYTES);

  reg clk, rst;
  initial begin
    clk = 0;
    forever #5 clk = !clk;
  end
  initial begin
    rst = 1;
    repeat (4) @(posedge clk);
    #1 rst = 0;
  end

  reg [BUS_BITS-1:0] memory [0:MEMORY_WORDS-1];
  reg [BUS_BITS-1:0] expected [0:MEMORY_WORDS-1];
  reg [31:0] runs [0:4*RUNS-1];
  initial begin
    $readmemh("memory.hex", memory);
    $readmemh("expected.hex", expected);
    $readmemh("runs.hex", runs);
  end

  wire [ADDRESS_BITS-1:0] m_axi_araddr, m_axi_awaddr;
  wire [7:0] m_axi_arlen, m_axi_awlen;
  wire [2:0] m_axi_arsize, m_axi_awsize;
  wire [1:0] m_axi_arburst, m_axi_awburst;
  wire m_axi_arvalid, m_axi_rready, m_axi_awvalid, m_axi_wlast, m_axi_wvalid, m_axi_bready;
  wire [BUS_BITS-1:0] m_axi_wdata;
  wire [BUS_BYTES-1:0] m_axi_wstrb;
  wire s_axi_awready, s_axi_wready, s_axi_bvalid, s_axi_arready, s_axi_rvalid;
  wire [1:0] s_axi_bresp, s_axi_rresp;
  wire [31:0] s_axi_rdata;
  wire interrupt;
  wire [7:0] events;

  // Main memory: one burst at a time in each direction, a beat per cycle.
  reg reading, writing, m_axi_bvalid;
  reg [ADDRESS_BITS-1:0] read_address, write_address;
  reg [7:0] read_left;
  wire m_axi_arready = !reading;
  wire m_axi_rvalid = reading;
  wire m_axi_rlast = read_left == 0;
  wire [BUS_BITS-1:0] m_axi_rdata = memory[read_address >> WORD_SHIFT];
  wire m_axi_awready = !writing && !m_axi_bvalid;
  wire m_axi_wready = writing;
  integer lane;

  always @(posedge clk)
    if (rst) begin
      reading <= 0;
      writing <= 0;
      m_axi_bvalid <= 0;
    end else begin
      if (m_axi_arvalid && m_axi_arready) begin
        reading <= 1;
        read_address <= m_axi_araddr;
        read_left <= m_axi_arlen;
      end else if (m_axi_rvalid && m_axi_rready) begin
        reading <= !m_axi_rlast;
        read_address <= read_address + BUS_BYTES;
        read_left <= read_left - 1;
      end
      if (m_axi_awvalid && m_axi_awready) begin
        writing <= 1;
        write_address <= m_axi_awaddr;
      end
      if (m_axi_wvalid && m_axi_wready) begin
        for (lane = 0; lane < BUS_BYTES; lane = lane + 1)
          if (m_axi_wstrb[lane])
            memory[write_address >> WORD_SHIFT][8*lane +: 8] <= m_axi_wdata[8*lane +: 8];
        write_address <= write_address + BUS_BYTES;
        if (m_axi_wlast) begin
          writing <= 0;
          m_axi_bvalid <= 1;
        end
      end
      if (m_axi_bvalid && m_axi_bready)
        m_axi_bvalid <= 0;
    end

  // The host: for each run four writes and the start, the interrupt, and a look at STATUS.
  localparam WRITE = 0, ANSWER = 1, WAIT = 2, READ = 3, CHECK = 4;
  reg [2:0] state;
  reg [2:0] step;
  reg [7:0] settling;
  reg [7:0] s_axi_awaddr, s_axi_araddr;
  reg [31:0] s_axi_wdata;
  reg s_axi_awvalid, s_axi_wvalid, s_axi_arvalid;
  integer run, cycles, word, wrong;

  always @(posedge clk)
    if (rst) begin
      state <= WRITE;
      step <= 0;
      run <= 0;
      cycles <= 0;
      s_axi_awvalid <= 0;
      s_axi_wvalid <= 0;
      s_axi_arvalid <= 0;
    end else begin
      cycles <= cycles + 1;
      if (s_axi_awvalid && s_axi_awready) s_axi_awvalid <= 0;
      if (s_axi_wvalid && s_axi_wready) s_axi_wvalid <= 0;
      if (s_axi_arvalid && s_axi_arready) s_axi_arvalid <= 0;
      case (state)
        WRITE: begin
          case (step)
            0: s_axi_awaddr <= PROGRAM_BASE;
            1: s_axi_awaddr <= PROGRAM_BYTES;
            2: s_axi_awaddr <= DATA_BASE;
            3: s_axi_awaddr <= DATA_BYTES;
            default: s_axi_awaddr <= CONTROL;
          endcase
          s_axi_wdata <= step == 4 ? 1 : runs[4 * run + {29'd0, step}];
          s_axi_awvalid <= 1;
          s_axi_wvalid <= 1;
          state <= ANSWER;
        end
        ANSWER:
          if (s_axi_bvalid) begin
            step <= step == 4 ? 0 : step + 1;
            state <= step == 4 ? WAIT : WRITE;
            settling <= 16;
          end
        WAIT:
          if (settling != 0)
            settling <= settling - 1;  // The interrupt of the run before ends with the start.
          else if (interrupt) begin
            s_axi_araddr <= STATUS;
            s_axi_arvalid <= 1;
            state <= READ;
          end
        READ:
          if (s_axi_rvalid) begin
            if (s_axi_rdata[2]) begin
              $display("FAIL: run %0d stopped with error %0d", run, s_axi_rdata[7:4]);
              $finish;
            end
            run <= run + 1;
            state <= run == RUNS - 1 ? CHECK : WRITE;
          end
        default: begin
          wrong = 0;
          for (word = 0; word < MEMORY_WORDS; word = word + 1)
            if (memory[word] !== expected[word]) begin
              if (wrong < 10)
                $display("address %h: expected %h, got %h",
                         word * BUS_BYTES, expected[word], memory[word]);
              wrong = wrong + 1;
            end
          if (wrong == 0)
            $display("PASS: %0d runs, %0d cycles", RUNS, cycles);
          else
            $display("FAIL: %0d of %0d words differ", wrong, MEMORY_WORDS);
          $finish;
        end
      endcase
      if (cycles == MAX_CYCLES) begin
        $display("FAIL: run %0d has no end after %0d cycles", run, cycles);
        $finish;
      end
    end

  core dut (
    .clk(clk), .rst(rst), .interrupt(interrupt), .events(events),
    .m_axi_araddr(m_axi_araddr), .m_axi_arlen(m_axi_arlen), .m_axi_arsize(m_axi_arsize),
    .m_axi_arburst(m_axi_arburst), .m_axi_arvalid(m_axi_arvalid), .m_axi_arready(m_axi_arready),
    .m_axi_rdata(m_axi_rdata), .m_axi_rresp(2'b00), .m_axi_rlast(m_axi_rlast),
    .m_axi_rvalid(m_axi_rvalid), .m_axi_rready(m_axi_rready),
    .m_axi_awaddr(m_axi_awaddr), .m_axi_awlen(m_axi_awlen), .m_axi_awsize(m_axi_awsize),
    .m_axi_awburst(m_axi_awburst), .m_axi_awvalid(m_axi_awvalid), .m_axi_awready(m_axi_awready),
    .m_axi_wdata(m_axi_wdata), .m_axi_wstrb(m_axi_wstrb), .m_axi_wlast(m_axi_wlast),
    .m_axi_wvalid(m_axi_wvalid), .m_axi_wready(m_axi_wready),
    .m_axi_bresp(2'b00), .m_axi_bvalid(m_axi_bvalid), .m_axi_bready(m_axi_bready),
    .s_axi_awaddr(s_axi_awaddr), .s_axi_awvalid(s_axi_awvalid), .s_axi_awready(s_axi_awready),
    .s_axi_wdata(s_axi_wdata), .s_axi_wstrb(4'b1111), .s_axi_wvalid(s_axi_wvalid),
    .s_axi_wready(s_axi_wready), .s_axi_bresp(s_axi_bresp), .s_axi_bvalid(s_axi_bvalid),
    .s_axi_bready(1'b1), .s_axi_araddr(s_axi_araddr), .s_axi_arvalid(s_axi_arvalid),
    .s_axi_arready(s_axi_arready), .s_axi_rdata(s_axi_rdata), .s_axi_rresp(s_axi_rresp),
    .s_axi_rvalid(s_axi_rvalid), .s_axi_rready(1'b1)
  );
endmodule
