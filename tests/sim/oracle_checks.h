/* What the oracle model looks at of each step before it computes it: the contract of model/backend.h. The first breach
 * stays in oracle.breach. */
#ifndef RN_TESTS_SIM_ORACLE_CHECKS_H
#define RN_TESTS_SIM_ORACLE_CHECKS_H

#include "tests/sim/oracle_backend.h"

void oracle_breach(struct oracle *oracle, const char *what);

/* Rows, tables and draws; false: there was a breach, then or before. The others look at a step that is good. */
bool oracle_step_good(struct oracle *oracle, const struct rn_step *step);
void oracle_check_copies(struct oracle *oracle, const struct rn_step *step);
void oracle_check_moves(struct oracle *oracle, const struct rn_step *step);
void oracle_check_states(struct oracle *oracle, const struct rn_step *step);

#endif
