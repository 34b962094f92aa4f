/* Where a model's weights in tiles are kept: DIR/FINGERPRINT.tiles. */
#ifndef RN_ACTORS_LOAD_WEIGHTS_PLACE_H
#define RN_ACTORS_LOAD_WEIGHTS_PLACE_H

#include "base/log.h"
#include "model/backend.h"

/* Makes the folder if its parent exists; one that cannot be made is told in the log. NO_MEMORY. Blocks on the disk;
 * fini is harmless after all. */
runnel_status rn_weights_place_init(struct rn_weights_place *place, struct rn_heap *heap, const char *folder,
                                    const struct rn_gguf *gguf, const struct rn_log *log, runnel_error *error);
void rn_weights_place_fini(struct rn_weights_place *place, struct rn_heap *heap);

#endif
