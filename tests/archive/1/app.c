/* calls today.o through its header: cc app.c today.o -lm */
#include <stdio.h>
#include "today.h"

int main(void) {
    static float x[6][16], y[3][8], out[3][6];
    int64_t x_shape[] = {6, 16}, y_shape[] = {3, 8}, out_shape[] = {3, 6};
    DLTensor a = {x, {1, 0}, 2, {2, 32, 1}, x_shape, 0, 0}, b = {y, {1, 0}, 2, {2, 32, 1}, y_shape, 0, 0};
    DLTensor c = {out, {1, 0}, 2, {2, 32, 1}, out_shape, 0, 0};
    if (fread(x, sizeof x, 1, stdin) != 1 || fread(y, sizeof y, 1, stdin) != 1) return 2;
    int32_t code = today_main(&a, &b, &c);
    if (code) { fprintf(stderr, "%s\n", today_main_error(code)); return 1; }
    for (int i = 0; i < 18; i++) printf("%.9g\n", (double)(&out[0][0])[i]);
    return 0;
}
