/* A process that holds memory on a simulated card, as any other program would:
 *
 *     hold DEVICE BYTES NAME
 *
 * It says "holding BYTES" and goes on until its input ends, so that nobody has to
 * remember to end it. Each line of input is a new number of bytes to hold, and is
 * answered in the same way, or with "out of memory". */
#include "simcard.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    char line[64];
    if (argc != 4) return 2;
    int device = atoi(argv[1]), first = 1;
    for (const char *bytes = argv[2]; bytes; bytes = fgets(line, sizeof line, stdin)) {
        uint64_t wanted = strtoull(bytes, NULL, 10);
        int error = sc_hold(device, wanted, argv[3]);
        if (error) puts(error == SC_OUT_OF_MEMORY ? "out of memory" : "no such device");
        else printf("holding %llu\n", (unsigned long long)wanted);
        fflush(stdout);
        if (error && first) return 1;
        first = 0;
    }
    return 0;
}
