/* A test that does without something is skipped, and says so: it never passes in silence. */
#ifndef RN_TESTS_SKIPPED_H
#define RN_TESTS_SKIPPED_H

/* Prints `skipped: ...`. If the program would end with 0, it ends with 77, which ctest calls skipped; its other tests
 * run and may fail. */
void note_skipped(const char *form, ...) __attribute__((format(printf, 1, 2)));

#endif
