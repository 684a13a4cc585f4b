// The Verilated core in a shared library: clock, host port, memory, event log, and a C interface.
//
// `tilewright_core.h` is generated beside this file's copy: it includes the Verilated classes and
// defines BUS_BYTES, BURST_BYTES, CONTROL_OFFSET and the list of memory arrays. Nothing here knows a
// configuration otherwise. The interface is bound by `sim/rtl.py`.

#include "tilewright_core.h"

#include <memory>
#include <vector>

#include "axi_memory.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

namespace tilewright {

// The first assertion of the design that failed, in the thread that evaluates it.
thread_local std::string failed_assertion;

}  // namespace tilewright

// What Verilator calls after it has printed a failed assertion (VL_USER_STOP leaves it to us).
void vl_stop(const char*, int line, const char*) VL_MT_UNSAFE {
    if (!tilewright::failed_assertion.empty()) return;
    tilewright::failed_assertion =
        "an assertion failed at line " + std::to_string(line) + " of the Verilog, see above";
}

namespace tilewright {

constexpr int UNITS = 4;
constexpr uint64_t RESET_CYCLES = 4, REGISTER_TIMEOUT_CYCLES = 10000;

enum Outcome { RUNNING = 0, INTERRUPTED = 1, SILENT = 2, VIOLATED = 3 };

// One array of a RAM, as Verilator keeps it: `rows` elements of `stride` bytes, `bits` of them used.
struct Array {
    const char* name;
    void* data;
    uint64_t rows, bits, stride;
};

class Model {
    VerilatedContext context;
    std::unique_ptr<VCore> core;
    AxiMemory<VCore, BUS_BYTES, BURST_BYTES> memory;
    uint64_t cycle = 0, start_cycle = 0, progress_cycle = 0;
    bool host_reads = false, host_writes = false;
#if VM_TRACE
    std::unique_ptr<VerilatedFstC> trace;
#endif

public:
    std::vector<Array> arrays;
    std::vector<uint64_t> events[2 * UNITS];

    Model() : core(std::make_unique<VCore>(&context, "core")), memory(*core) {
#define TILEWRIGHT_ARRAY(label, member, used_bits)                                         \
    arrays.push_back({label, &core->rootp->member, sizeof(core->rootp->member) /          \
                      sizeof(core->rootp->member[0]), used_bits, sizeof(core->rootp->member[0])});
        TILEWRIGHT_ARRAYS
#undef TILEWRIGHT_ARRAY
        reset();
    }
    ~Model() {
        close_trace();
        core->final();
    }

    void reset() {
        memory.reset();
        core->s_axi_awvalid = core->s_axi_wvalid = core->s_axi_arvalid = 0;
        core->s_axi_bready = core->s_axi_rready = 0;
        host_reads = host_writes = false;
        core->rst = 1;
        for (uint64_t n = 0; n < RESET_CYCLES; ++n) {
            core->clk = 0, settle();
            core->clk = 1, settle();
            ++cycle;
        }
        core->rst = 0;
    }

    void set_timing(const Timing& timing) { memory.set_timing(timing); }
    void map(int index, const Region& region) { memory.regions[index] = region; }
    void set_fault(uint64_t base, uint64_t size) { memory.faulty = {base, size}; }
    const char* violation() const {
        return (failed_assertion.empty() ? memory.violation : failed_assertion).c_str();
    }
    uint64_t now() const { return cycle - start_cycle; }
    uint64_t read_beats() const { return memory.read_beats_moved; }
    uint64_t write_beats() const { return memory.write_beats_moved; }

    // Write a register; false when the core does not answer.
    bool write_register(unsigned offset, uint32_t value) {
        const uint64_t limit = cycle + REGISTER_TIMEOUT_CYCLES;
        core->s_axi_awaddr = offset, core->s_axi_wdata = value, core->s_axi_wstrb = 15;
        core->s_axi_awvalid = core->s_axi_wvalid = core->s_axi_bready = 1;
        host_writes = true;
        while (cycle < limit) {
            low();
            const bool address = core->s_axi_awvalid && core->s_axi_awready;
            const bool data = core->s_axi_wvalid && core->s_axi_wready;
            const bool response = core->s_axi_bvalid;
            high();
            if (address) core->s_axi_awvalid = 0;
            if (data) core->s_axi_wvalid = 0;
            if ((address || data) && !core->s_axi_awvalid && !core->s_axi_wvalid &&
                offset == CONTROL_OFFSET && (value & 1)) {
                start_cycle = progress_cycle = cycle + 1;  // the write follows its last part
                memory.restart(start_cycle);
            }
            if (response) {
                core->s_axi_bready = 0, host_writes = false;
                return true;
            }
        }
        return false;
    }

    bool read_register(unsigned offset, uint32_t& value) {
        const uint64_t limit = cycle + REGISTER_TIMEOUT_CYCLES;
        core->s_axi_araddr = offset;
        core->s_axi_arvalid = core->s_axi_rready = 1;
        host_reads = true;
        while (cycle < limit) {
            low();
            const bool address = core->s_axi_arvalid && core->s_axi_arready;
            const bool response = core->s_axi_rvalid;
            if (response) value = core->s_axi_rdata;
            high();
            if (address) core->s_axi_arvalid = 0;
            if (response) {
                core->s_axi_rready = 0, host_reads = false;
                return true;
            }
        }
        return false;
    }

    bool start() {
        memory.violation.clear();
        failed_assertion.clear();
        for (auto& log : events) log.clear();
        memory.start();
        return write_register(CONTROL_OFFSET, 1);
    }

    // Go on for at most `budget` cycles.
    Outcome run(uint64_t budget, uint64_t silence_cycles) {
        for (const uint64_t limit = cycle + budget; cycle < limit;) {
            low();
            const bool interrupt = core->__SYM__interrupt;  // Verilator takes the name for a keyword
            high();
            if (!memory.violation.empty() || !failed_assertion.empty()) return VIOLATED;
            if (interrupt) return INTERRUPTED;
            if (cycle - progress_cycle > silence_cycles) return SILENT;
        }
        return RUNNING;
    }

    bool open_trace(const char* path) {
#if VM_TRACE
        context.traceEverOn(true);
        trace = std::make_unique<VerilatedFstC>();
        core->trace(trace.get(), 99);
        trace->open(path);
        return true;
#else
        (void)path;
        return false;
#endif
    }
    void close_trace() {
#if VM_TRACE
        if (trace) trace->close();
        trace.reset();
#endif
    }

private:
    void settle() {
        core->eval();
#if VM_TRACE
        if (trace) trace->dump(2 * cycle + core->clk);
#endif
    }

    // First half of a cycle: set inputs, settle, look at the outputs.
    void low() {
        memory.drive(cycle);
        core->clk = 0, settle();
        if (memory.observe(cycle)) progress_cycle = cycle;
        if (unsigned bits = core->events) {
            progress_cycle = cycle;
            for (int line = 0; line < 2 * UNITS; ++line)
                if (bits >> line & 1) events[line].push_back(cycle - start_cycle);
        }
        if ((core->s_axi_rvalid && !host_reads) || (core->s_axi_bvalid && !host_writes))
            memory.violation = "register port answers without a request";
    }

    // Second half: the rising edge.
    void high() {
        core->clk = 1, settle();
        ++cycle;
    }
};

}  // namespace tilewright

using tilewright::Model;

extern "C" {

Model* tw_create() { return new Model(); }
void tw_destroy(Model* model) { delete model; }
void tw_reset(Model* model) { model->reset(); }

void tw_set_timing(Model* model, const uint64_t* values) {
    model->set_timing({values[0], values[1], values[2], values[3], values[4], values[5],
                       {values[6], values[7], values[8], values[9], values[10]}});
}
void tw_map(Model* model, int index, uint64_t base, uint64_t size, void* bytes, int writable) {
    model->map(index, {base, size, static_cast<uint8_t*>(bytes), writable != 0});
}
void tw_set_fault(Model* model, uint64_t base, uint64_t size) { model->set_fault(base, size); }

int tw_write_register(Model* model, unsigned offset, uint32_t value) {
    return model->write_register(offset, value);
}
int tw_read_register(Model* model, unsigned offset, uint32_t* value) {
    return model->read_register(offset, *value);
}
int tw_start(Model* model) { return model->start(); }
int tw_run(Model* model, uint64_t budget, uint64_t silence_cycles) {
    return model->run(budget, silence_cycles);
}
uint64_t tw_cycles(Model* model) { return model->now(); }
uint64_t tw_beats(Model* model, int write) {
    return write ? model->write_beats() : model->read_beats();
}
const char* tw_violation(Model* model) { return model->violation(); }

uint64_t tw_event_count(Model* model, int line) { return model->events[line].size(); }
const uint64_t* tw_events(Model* model, int line) { return model->events[line].data(); }

int tw_array_count(Model* model) { return static_cast<int>(model->arrays.size()); }
const tilewright::Array* tw_array(Model* model, int index) { return &model->arrays[index]; }

int tw_open_trace(Model* model, const char* path) { return model->open_trace(path); }
void tw_close_trace(Model* model) { model->close_trace(); }
}
