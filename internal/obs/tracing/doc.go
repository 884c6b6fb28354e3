// Package tracing makes the spans of one trace for each message, from its push to the
// delivery of its reply, over all services.
//
// It promises:
//   - The ids of a message's trace and of its first span come from the message's
//     run id alone. Whoever works on the message, on whatever machine and after
//     whatever crash, continues the same trace, and nothing is stored for it.
//   - A trace holds names, ids, counts and outcomes, never what a peer, a model or
//     a tool wrote, and no error text.
//   - A nil [*Tracer] and the zero [Span] do nothing and allocate nothing:
//     services have those when traces are off.
//
// It does not send spans anywhere (package tracing/export) and does not trace the
// calls between services (the stats handlers of tracing/export do).
//
// The spans of a message; those with a slash are calls of the registry:
//
//	channel receive                        gateway, of a message that came over an account
//	push                                   registry, below that, and linked to the caller's trace
//	 +-- turn                              runner, one for each holder that works on it
//	 |    +-- claim -- .../BeginTurn       T1, T2
//	 |    +-- chat MODEL                   T3, one for each try
//	 |    +-- .../RecordStep               T4, T6
//	 |    +-- execute_tool NAME            T5
//	 |    |    +-- sandbox run, mcp call, wait
//	 |    +-- reply -- .../FinishTurn      T7 or T9
//	 +-- deliver                           deliverer, one for each try (D2)
//	      +-- .../FinishDelivery           D3 or D4
package tracing
