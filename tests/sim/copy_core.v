// A stand-in with the ports of the core: copies one burst of four words, or misbehaves on request.
//
// PROGRAM_BYTES selects what goes wrong: 0 nothing, 1 the read address changes while it waits, 2 the
// last beat is marked too early, 3 a burst crosses a page, 4 it never finishes, 5 write data are
// withdrawn, 6 it reads outside of its data, 7 it writes outside, 8 a response nobody asked for, 9 an
// assertion fails.

module copy_core (
    input clk, input rst,
    output [31:0] m_axi_araddr, output [7:0] m_axi_arlen, output [2:0] m_axi_arsize,
    output [1:0] m_axi_arburst, output m_axi_arvalid, input m_axi_arready,
    input [31:0] m_axi_rdata, input [1:0] m_axi_rresp, input m_axi_rlast, input m_axi_rvalid,
    output m_axi_rready,
    output [31:0] m_axi_awaddr, output [7:0] m_axi_awlen, output [2:0] m_axi_awsize,
    output [1:0] m_axi_awburst, output m_axi_awvalid, input m_axi_awready,
    output [31:0] m_axi_wdata, output [3:0] m_axi_wstrb, output m_axi_wlast, output m_axi_wvalid,
    input m_axi_wready, input [1:0] m_axi_bresp, input m_axi_bvalid, output m_axi_bready,
    input [7:0] s_axi_awaddr, input s_axi_awvalid, output s_axi_awready,
    input [31:0] s_axi_wdata, input [3:0] s_axi_wstrb, input s_axi_wvalid, output s_axi_wready,
    output [1:0] s_axi_bresp, output reg s_axi_bvalid, input s_axi_bready,
    input [7:0] s_axi_araddr, input s_axi_arvalid, output s_axi_arready,
    output reg [31:0] s_axi_rdata, output [1:0] s_axi_rresp, output reg s_axi_rvalid,
    input s_axi_rready,
    output interrupt, output [7:0] events
);
    localparam IDLE = 0, READ = 1, DATA = 2, WRITE = 3, RESPONSE = 4, DONE = 5;
    reg [2:0] state = IDLE;
    reg [31:0] registers [0:15];
    reg [31:0] words [0:3];
    reg [2:0] beat = 0;
    reg [7:0] waited = 0;
    reg address_sent = 0;
    reg starts = 0;
    wire [31:0] base = registers[7];
    wire [3:0] defect = registers[6][3:0];

    assign m_axi_araddr = (defect == 6 ? 32'h8000 : defect == 3 ? base + 32'hFF8 : base) +
                          (defect == 1 ? {22'b0, waited, 2'b0} : 32'b0);
    assign m_axi_arlen = 3;
    assign m_axi_arsize = 2;
    assign m_axi_arburst = 1;
    assign m_axi_arvalid = state == READ;
    assign m_axi_rready = state == DATA && defect != 4;
    assign m_axi_awaddr = defect == 7 ? 32'h8000 : base + 32'd16;
    assign m_axi_awlen = 3;
    assign m_axi_awsize = 2;
    assign m_axi_awburst = 1;
    assign m_axi_awvalid = state == WRITE && !address_sent;
    assign m_axi_wdata = words[beat[1:0]];
    assign m_axi_wstrb = 15;
    assign m_axi_wlast = beat == (defect == 2 ? 2 : 3);
    assign m_axi_wvalid = state == WRITE && beat < 4 && !(defect == 5 && waited[0]);
    assign m_axi_bready = 1;
    assign s_axi_awready = s_axi_awvalid && s_axi_wvalid && !s_axi_bvalid;
    assign s_axi_wready = s_axi_awready;
    assign s_axi_arready = s_axi_arvalid && !s_axi_rvalid;
    assign s_axi_bresp = 0;
    assign s_axi_rresp = 0;
    assign interrupt = state == DONE;
    assign events = {6'b0, state == RESPONSE && m_axi_bvalid, state == READ && waited == 0};

    always @(posedge clk)
        if (defect == 9 && state == READ) assert (!m_axi_arready);

    always @(posedge clk) begin
        waited <= waited + 1;
        if (s_axi_bready) s_axi_bvalid <= 0;
        if (s_axi_rready) s_axi_rvalid <= 0;
        if (s_axi_awready) begin
            s_axi_bvalid <= 1;
            registers[s_axi_awaddr[5:2]] <= s_axi_wdata;
        end
        // Like the core, it takes a cycle from the end of the write to its effect.
        starts <= s_axi_awready && s_axi_awaddr == 8'h0C && s_axi_wdata[0];
        if (starts) begin
            state <= READ;
            beat <= 0;
            waited <= 0;
            address_sent <= 0;
        end
        if (s_axi_arready) begin
            s_axi_rvalid <= 1;
            s_axi_rdata <= registers[s_axi_araddr[5:2]];
        end
        if (defect == 8 && state == READ) s_axi_bvalid <= 1;
        if (state == READ && m_axi_arready) state <= DATA;
        if (state == DATA && m_axi_rvalid) begin
            words[beat[1:0]] <= m_axi_rdata;
            beat <= m_axi_rlast ? 0 : beat + 1;
            if (m_axi_rlast) state <= WRITE;
        end
        if (state == WRITE) begin
            if (m_axi_awready) address_sent <= 1;
            if (m_axi_wvalid && m_axi_wready) beat <= beat + 1;
            if (beat == 4 && address_sent) state <= RESPONSE;
        end
        if (state == RESPONSE && m_axi_bvalid) state <= DONE;
        if (rst) begin
            state <= IDLE;
            s_axi_bvalid <= 0;
            s_axi_rvalid <= 0;
        end
    end
endmodule
