// Package retry sends a call that failed on one server to another one.
//
// A call is sent again only where that can help and cannot hurt:
//
//   - It is a unary call of a method that is known to infer. Updates are not, nor are calls that are tied to one server: those
//     of a sequence, and those whose tensors lie in shared memory.
//   - What went wrong is the server's doing, and another server may well do better: the policy model_aware judges that, from
//     the code and the text of the status, as its config says. What the caller did wrong, cancelled or had no more time for
//     ends at once.
//   - There is a server that the call has not been to. Each attempt goes to such a one, and there are at most three, or as many as
//     WithMaxAttempts says; one of them may follow on a server that had too much to do.
//   - The Budget allows it: a fifth of the calls, or ten a second if that is more.
//
// Where one of these fails, the caller gets the last server's error, exactly as it came. A call whose model is nowhere gets the
// NOT_FOUND of the third server that was asked.
//
// There is no pause between attempts, since another server is another queue. But a server that says how long to wait
// (grpc-retry-pushback-ms, google.rpc.RetryInfo) is heeded: the next attempt, on whichever server, starts then, or never, if
// the server says so, the call's deadline comes first or the wait is over ten seconds.
//
// gRPC's own retries must be off (grpc.WithDisableRetry): else each attempt is retried by them as well. What gRPC sends again
// because no server has seen it is not affected by that option, and counts for nothing here. A timeout that the service
// config sets for a method applies to each attempt. A call that waits for ready does so for its first attempt only.
package retry
