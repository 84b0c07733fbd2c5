// Package picker decides which endpoint serves a request to a model server. It knows no gRPC: the same code
// runs under the gRPC policy, a gateway and a simulator, takes time as an argument and never sleeps.
//
// The nouns:
//
//   - a [Request] is what is known of a call: the model, what kind of call it is, how large it is;
//   - an [Endpoint] lives as long as its server is listed and owns the live numbers (calls in flight, latency);
//   - a [Table] is an immutable view of all endpoints with their weights and status; readiness and membership
//     changes make a new one that points at the same endpoints, so no history is lost;
//   - a [Strategy] chooses among a Table's endpoints and says why: its [Choice] always carries a [Reason].
//
// A new strategy is one file: an [Options] type, a Strategy, and a call of [Register] in an init function.
package picker
