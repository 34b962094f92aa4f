/* How an attempt that never blocks has ended. */
#ifndef RN_CACHE_STORE_REDIS_IO_H
#define RN_CACHE_STORE_REDIS_IO_H

enum rn_redis_io {
    RN_REDIS_DONE,  /* it, or a part of it that is told */
    RN_REDIS_READ,  /* nothing; again when the other side has written */
    RN_REDIS_WRITE, /* nothing; again when the line takes bytes */
    RN_REDIS_LOST   /* the connection is of no use any more */
};

#endif
