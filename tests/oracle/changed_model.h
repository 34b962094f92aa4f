/* A model of a test with one thing of its header changed at a time, and what its plan says to that.
 *
 * The weights are written once. A changed header is put before them so that it ends where they begin:
 *
 *     front                         header | weights                | room for a tensor that has grown
 *     (nothing)        <- begins here            stay where they are
 *
 * So a change costs what reading the header and making the plan do. */
#ifndef RN_TESTS_ORACLE_CHANGED_MODEL_H
#define RN_TESTS_ORACLE_CHANGED_MODEL_H

#include "../model/model_edit.h"
#include "base/alloc.h"

struct changed_model {
    const char *name;
    struct model_edit edit; /* what to change, and to put back */
    uint32_t without_key;   /* its index, or UINT32_MAX: none is left out */
    uint32_t without_tensor;
    struct rn_heap heap;
    runnel_error error; /* of the last plan */
    struct writer file, header;
    char *image;
    size_t weights, end; /* where they begin and end in the image */
    uint64_t at[sizeof((struct model_edit *)0)->tensors / sizeof(struct edit_tensor)]; /* of a tensor's, behind that */
    struct rn_gguf *gguf;
};

/* name: of a file of ../shared, or of a text that made_model.h reads. Fails the test where it has no plan. */
void changed_open(struct changed_model *m, const char *name);
void changed_close(struct changed_model *m);

/* Whether there is room for what m->edit says. One change to an unchanged model always fits. */
bool changed_fits(struct changed_model *m);

/* The plan of what m->edit says, which must fit, or of the prediction layers. OK: it is one that its checker accepts.
 * Else m->error has a sentence. Fails the test if neither is so, or if something stays on the heap. */
runnel_status changed_plan(struct changed_model *m, bool nextn);

/* Another value for a key: all kinds and sizes that a file can have; the first are a text and an empty array. NULL
 * behind the last. */
enum { CHANGED_TO_NO_NUMBER = 2 };
struct changed_value {
    const char *what;
    struct edit_key key; /* its name is empty */
    bool is_wrong;       /* no key is read as such: where it is refused, the sentence names the key */
};
const struct changed_value *changed_value(uint32_t index);

/* Another tensor of the same name; false where there is no change of this number to it. Behind the last: < n. */
enum { CHANGED_TENSORS = 10 };
bool changed_tensor(struct edit_tensor *tensor, uint32_t index);

#endif
