/* Runs a network with one input and one output for whoever is at the other end of the link.

   It sends the result of `network_load`, four bytes, lowest first. Then, for each input that
   arrives, it sends the result of `network_run`, the core's cycles for the last program, and the
   output. */

#include "network.h"
#include "tilewright_registers.h"

static uint32_t input[(INPUT_BYTES + 3) / 4], output[(OUTPUT_BYTES + 3) / 4];

static void receive(void *target, uint32_t bytes)
{
    unsigned char *to = target;

    while (bytes--) *to++ = BOARD_LINK;
}

static void send(const void *source, uint32_t bytes)
{
    const unsigned char *from = source;

    while (bytes--) BOARD_LINK = *from++;
}

int main(void)
{
    int result = network_load();

    send(&result, sizeof result);
    for (;;) {
        uint32_t cycles;

        receive(input, INPUT_BYTES);
        result = network_run((void *)input, (void *)output);
        cycles = *(volatile uint32_t *)(TILEWRIGHT_REGISTERS + TILEWRIGHT_CYCLES_LOW);
        send(&result, sizeof result);
        send(&cycles, sizeof cycles);
        send(output, OUTPUT_BYTES);
    }
}
