/* runnel repack: lays a model's weights into tiles and keeps them in a file that later runs map, see --weights-dir. */
#include <stdio.h>
#include <string.h>

#include "common.h"

int app_repack(const struct app_options *options)
{
    struct app_options tiles = *options;
    struct app app = {0};
    int code;

    if (options->weights_dir == NULL) {
        app_error("repack needs --weights-dir: where the weights shall be kept");
        return APP_USAGE;
    }
    tiles.weights = "tiles";
    code = app_open(&app, &tiles, false);
    if (code == APP_OK && app.info.tiled_bytes == 0)
        printf("no weights of this model are read faster in tiles here; nothing is kept\n");
    else if (code == APP_OK && app.info.mapped_bytes < app.info.tiled_bytes) {
        app_error("not all weights could be kept; the log says why");
        code = APP_FAILURE;
    } else if (code == APP_OK)
        printf("%.1f MiB of %.1f MiB of weights are kept in tiles\n", (double)app.info.mapped_bytes / (1 << 20),
               (double)app.info.weight_bytes / (1 << 20));
    app_close(&app);
    return code;
}
