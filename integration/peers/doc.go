// Package peers measures the model_aware policy side by side with the policies that grpc-go brings: the cost of a pick, of an
// update, of a cold start and of a whole call, all in one process and against the same fake channel.
//
// The pickers are the genuine ones: each policy is built through its registered builder, given endpoints whose
// connections succeed at once, and asked by way of the last picker that it published.
//
//	go test -bench . ./...    all benchmarks
//	go run ./benchpick        several repetitions, medians, and the goals beside them
package peers
