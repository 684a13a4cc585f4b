// The memory behind the core's AXI4 port: latency, bandwidth, seeded stalls and protocol rules.
//
// `Core` is the Verilated class; ports are read and written as bytes, so that one text serves every
// bus width (Verilator keeps a port of any width as little endian 32-bit words). Per cycle the
// harness calls `drive` before and `observe` after the combinational logic has settled.
// Rules: AMBA AXI and ACE Protocol Specification (ARM IHI 0022), sections A3.2 to A3.4.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

namespace tilewright {

constexpr uint64_t PAGE_BYTES = 4096;  // IHI 0022, A3.4.1: a burst must not cross this boundary
constexpr unsigned OKAY = 0, SLVERR = 2, DECERR = 3, INCR = 1;
constexpr size_t WRITE_BUFFER_BEATS = 512;
constexpr uint8_t BESIDE_DATA = 0xA5;  // what a beat reads in bytes that belong to no region

// One contiguous piece of memory, owned by the caller.
struct Region {
    uint64_t base = 0, size = 0;
    uint8_t* bytes = nullptr;
    bool writable = false;

    bool holds(uint64_t address, uint64_t length) const {
        return address >= base && address - base < size && length <= size - (address - base);
    }
};

// A bus that reads and writes share, as in `memory_model.py`; without `buffered` there is none.
struct SharedBus {
    uint64_t buffered = 0, read_gap_cycles = 0, write_gap_cycles = 0;
    uint64_t refresh_cycles = 0, refresh_interval_cycles = 0;
};

struct Timing {
    uint64_t latency_cycles = 64, beats = 1, cycles = 1, outstanding_bursts = 64;
    uint64_t stall_of_4096 = 0, seed = 0;
    SharedBus bus;
};

// xorshift64* (Vigna, ACM TOMS 42(4), 2016): one draw serves the five channels of a cycle.
class Random {
    uint64_t state = 1;

public:
    void reseed(uint64_t seed) {
        state = (seed + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
        if (!state) state = 1;
    }
    uint64_t draw() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1Dull;
    }
};

// At most `beats` beats every `cycles` cycles, without saving up.
class Bandwidth {
    uint64_t credit = 0;

public:
    void refill(const Timing& timing) {
        credit += timing.beats;
        const uint64_t most = timing.cycles + timing.beats - 1;
        if (credit > most) credit = most;
    }
    void fill(const Timing& timing) { credit = timing.cycles + timing.beats - 1; }
    bool available(const Timing& timing) const { return credit >= timing.cycles; }
    void take(const Timing& timing) { credit -= timing.cycles; }
};

struct Request {
    uint64_t address = 0;
    unsigned beats = 0, size = 0, burst = 0;
    bool operator==(const Request& other) const {
        return address == other.address && beats == other.beats && size == other.size &&
               burst == other.burst;
    }
};

// What a channel held while it was not accepted; it must hold it still in the next cycle.
template <typename Payload>
class Stability {
    bool waiting = false;
    Payload held{};

public:
    bool broken(bool valid, bool ready, const Payload& payload) {
        const bool wrong = waiting && (!valid || !(held == payload));
        waiting = valid && !ready;
        held = payload;
        return wrong;
    }
    void clear() { waiting = false; }
};

template <typename Core, unsigned BUS_BYTES, unsigned BURST_BYTES>
class AxiMemory {
    struct Beat {
        uint8_t data[BUS_BYTES]{};
        uint32_t strobe = 0;
        bool last = false;
        bool operator==(const Beat& other) const {
            return last == other.last && strobe == other.strobe &&
                   std::memcmp(data, other.data, BUS_BYTES) == 0;
        }
    };
    struct Pending {
        Request request;
        uint64_t ready_cycle = 0;
        unsigned moved = 0, response = OKAY;
    };

    Core& core;
    Timing timing;
    Random random;
    Bandwidth read_bandwidth, write_bandwidth;
    std::deque<Pending> reads, writes, full_writes, responses;
    std::deque<Beat> write_beats;
    Stability<Request> read_requests, write_requests;
    Stability<Beat> write_data;
    bool read_offered = false, response_offered = false;

    // The shared bus: reads that were served and have beats left, and when it is free.
    uint64_t served_reads = 0, free_cycle = 0, due_cycle = 0, start_cycle = 0, refreshes = 0;
    bool wrote = false;

public:
    Region regions[2];
    Region faulty;  // accesses here are answered with SLVERR
    std::string violation;
    uint64_t read_beats_moved = 0, write_beats_moved = 0;

    explicit AxiMemory(Core& owner) : core(owner) {}

    void set_timing(const Timing& chosen) { timing = chosen; }

    // What earlier runs did to bandwidth and draws is forgotten, so that equal runs take as long.
    void start() {
        random.reseed(timing.seed);
        read_bandwidth.fill(timing);
        write_bandwidth.fill(timing);
    }

    // Forget everything in flight; regions and timing stay.
    void reset() {
        reads.clear(), writes.clear(), full_writes.clear(), responses.clear(), write_beats.clear();
        served_reads = 0;
        read_requests.clear(), write_requests.clear(), write_data.clear();
        read_offered = response_offered = false;
        core.m_axi_arready = core.m_axi_rvalid = core.m_axi_awready = 0;
        core.m_axi_wready = core.m_axi_bvalid = 0;
    }

    bool idle() const {
        return reads.empty() && writes.empty() && full_writes.empty() && responses.empty();
    }

    // A program starts: the next refresh comes at a known time.
    void restart(uint64_t cycle) {
        start_cycle = cycle;
        free_cycle = cycle + timing.bus.refresh_cycles;
        due_cycle = refreshes = 0;
        wrote = false;
    }

    // Set the inputs of this cycle.
    void drive(uint64_t cycle) {
        bool stalled[5] = {};
        if (timing.stall_of_4096) {
            const uint64_t bits = random.draw();
            for (int channel = 0; channel < 5; ++channel)
                stalled[channel] = ((bits >> (12 * channel)) & 4095) < timing.stall_of_4096;
        }
        read_bandwidth.refill(timing);
        write_bandwidth.refill(timing);
        if (shared()) {
            decide(cycle);
            core.m_axi_arready = !stalled[0];
            core.m_axi_awready = !stalled[2];
            core.m_axi_wready = !stalled[3] && kept(cycle) < timing.bus.buffered;
        } else {
            core.m_axi_arready = !stalled[0] && reads.size() < timing.outstanding_bursts;
            core.m_axi_awready =
                !stalled[2] && writes.size() + responses.size() < timing.outstanding_bursts;
            core.m_axi_wready = !stalled[3] && write_beats.size() < WRITE_BUFFER_BEATS &&
                                write_bandwidth.available(timing);
        }
        if (!read_offered && !reads.empty() && !stalled[1] && readable(reads.front(), cycle)) {
            read_bandwidth.take(timing);
            offer_read(reads.front());
        }
        core.m_axi_rvalid = read_offered;
        if (!response_offered && !responses.empty() && !stalled[4] &&
            cycle >= responses.front().ready_cycle) {
            response_offered = true;
            core.m_axi_bresp = responses.front().response;
        }
        core.m_axi_bvalid = response_offered;
    }

    // Check the rules, take what both sides agreed on; returns whether anything moved.
    bool observe(uint64_t cycle) {
        const bool read = observe_reads(cycle);
        return observe_writes(cycle) || read;
    }

private:
    bool shared() const { return timing.bus.buffered; }

    bool readable(const Pending& burst, uint64_t cycle) const {
        if (!shared()) return cycle >= burst.ready_cycle && read_bandwidth.available(timing);
        return served_reads && cycle >= burst.ready_cycle + burst.moved * timing.cycles;
    }

    // Bursts of writes whose data wait, or wait for their response.
    uint64_t kept(uint64_t cycle) const {
        uint64_t count = full_writes.size();
        for (const Pending& burst : responses) count += burst.ready_cycle > cycle;
        return count;
    }

    // Serve a burst, or refresh, if the bus is free.
    void decide(uint64_t cycle) {
        const SharedBus& bus = timing.bus;
        if (cycle < free_cycle) return;
        if (cycle >= due_cycle) {
            free_cycle = cycle + bus.refresh_cycles;
            due_cycle = start_cycle + 1 + ++refreshes * bus.refresh_interval_cycles;
            return;
        }
        const bool has_read = reads.size() > served_reads && served_reads < bus.buffered;
        const bool has_write = !full_writes.empty();
        if (!has_read && !has_write) return;
        wrote = has_write && !(has_read && wrote);
        Pending& burst = wrote ? full_writes.front() : reads[served_reads];
        const uint64_t gap = wrote ? bus.write_gap_cycles : bus.read_gap_cycles;
        free_cycle = cycle + burst.request.beats * timing.cycles + gap;
        burst.ready_cycle = cycle + timing.latency_cycles - 1;
        if (!wrote) {
            ++served_reads;
            return;
        }
        burst.ready_cycle += (burst.request.beats - 1) * timing.cycles;
        responses.push_back(burst);
        full_writes.pop_front();
    }

    bool observe_reads(uint64_t cycle) {
        bool moved = false;
        const Request request{core.m_axi_araddr, core.m_axi_arlen + 1u, core.m_axi_arsize,
                              core.m_axi_arburst};
        if (read_requests.broken(core.m_axi_arvalid, core.m_axi_arready, request))
            report("AR changed or dropped before it was accepted", request.address);
        if (read_offered && core.m_axi_rready) {
            moved = true;
            ++read_beats_moved;
            read_offered = false;
            if (++reads.front().moved == reads.front().request.beats) {
                reads.pop_front();
                if (shared()) --served_reads;
            }
        }
        if (core.m_axi_arvalid && core.m_axi_arready) {
            moved = true;
            check(request, "AR");
            reads.push_back({request, cycle + timing.latency_cycles});
        }
        return moved;
    }

    bool observe_writes(uint64_t cycle) {
        bool moved = false;
        const Request request{core.m_axi_awaddr, core.m_axi_awlen + 1u, core.m_axi_awsize,
                              core.m_axi_awburst};
        if (write_requests.broken(core.m_axi_awvalid, core.m_axi_awready, request))
            report("AW changed or dropped before it was accepted", request.address);
        Beat beat;
        if (core.m_axi_wvalid) {
            std::memcpy(beat.data, &core.m_axi_wdata, BUS_BYTES);
            beat.strobe = core.m_axi_wstrb;
            beat.last = core.m_axi_wlast;
        }
        if (write_data.broken(core.m_axi_wvalid, core.m_axi_wready, beat))
            report("W changed or dropped before it was accepted", request.address);
        if (response_offered && core.m_axi_bready) {
            moved = true;
            response_offered = false;
            responses.pop_front();
        }
        if (core.m_axi_awvalid && core.m_axi_awready) {
            moved = true;
            check(request, "AW");
            writes.push_back({request});
        }
        if (core.m_axi_wvalid && core.m_axi_wready) {
            moved = true;
            ++write_beats_moved;
            write_bandwidth.take(timing);
            write_beats.push_back(beat);
        }
        while (!writes.empty() && !write_beats.empty()) commit(cycle);
        return moved;
    }

    void commit(uint64_t cycle) {
        Pending& burst = writes.front();
        const Beat& beat = write_beats.front();
        const uint64_t first = burst.request.address & ~uint64_t(BUS_BYTES - 1);
        const unsigned response = store(first + uint64_t(burst.moved) * BUS_BYTES, beat);
        if (response > burst.response) burst.response = response;
        ++burst.moved;
        const bool complete = burst.moved == burst.request.beats;
        if (beat.last != complete) report("wlast is not at the last beat", burst.request.address);
        write_beats.pop_front();
        if (!complete) return;
        burst.ready_cycle = cycle + timing.latency_cycles;
        (shared() ? full_writes : responses).push_back(burst);
        writes.pop_front();
    }

    void offer_read(const Pending& burst) {
        const uint64_t first = burst.request.address & ~uint64_t(BUS_BYTES - 1);
        const uint64_t address = first + uint64_t(burst.moved) * BUS_BYTES;
        uint8_t data[BUS_BYTES];
        core.m_axi_rresp = load(address, data);
        std::memcpy(&core.m_axi_rdata, data, BUS_BYTES);
        core.m_axi_rlast = burst.moved + 1 == burst.request.beats;
        read_offered = true;
    }

    unsigned load(uint64_t address, uint8_t* data) {
        if (faulty.size && faulty.holds(address, 1)) {
            std::memset(data, BESIDE_DATA, BUS_BYTES);
            return SLVERR;
        }
        for (const Region& region : regions)
            if (region.holds(address, BUS_BYTES)) {
                std::memcpy(data, region.bytes + (address - region.base), BUS_BYTES);
                return OKAY;
            }
        bool any = false;
        for (unsigned lane = 0; lane < BUS_BYTES; ++lane) {
            data[lane] = BESIDE_DATA;
            for (const Region& region : regions)
                if (region.holds(address + lane, 1)) {
                    data[lane] = region.bytes[address + lane - region.base];
                    any = true;
                }
        }
        if (any) return OKAY;
        report("read outside of program and data", address);
        return DECERR;
    }

    unsigned store(uint64_t address, const Beat& beat) {
        if (faulty.size && faulty.holds(address, 1)) return SLVERR;
        for (unsigned lane = 0; lane < BUS_BYTES; ++lane) {
            if (!(beat.strobe >> lane & 1)) continue;
            bool written = false;
            for (Region& region : regions)
                if (region.writable && region.holds(address + lane, 1)) {
                    region.bytes[address + lane - region.base] = beat.data[lane];
                    written = true;
                }
            if (!written) {
                report("write outside of the data window", address + lane);
                return DECERR;
            }
        }
        return OKAY;
    }

    void check(const Request& request, const char* channel) {
        const uint64_t bytes = uint64_t(request.beats) * BUS_BYTES;
        const uint64_t first = request.address & ~uint64_t(BUS_BYTES - 1);
        const std::string name(channel);
        if (request.burst != INCR) report(name + ": burst type is not INCR", request.address);
        if (1u << request.size != BUS_BYTES)
            report(name + ": size is not the width of the bus", request.address);
        if (first / PAGE_BYTES != (first + bytes - 1) / PAGE_BYTES)
            report(name + ": burst crosses a 4 KiB boundary", request.address);
        if (first / BURST_BYTES != (first + bytes - 1) / BURST_BYTES)
            report(name + ": burst crosses a multiple of the longest burst", request.address);
    }

    void report(const std::string& rule, uint64_t address) {
        if (!violation.empty()) return;
        char place[48];
        std::snprintf(place, sizeof place, " (address 0x%llx)", (unsigned long long)address);
        violation = rule + place;
    }
};

}  // namespace tilewright
