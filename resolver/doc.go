// Package resolver tells the model_aware policy what is known of an endpoint beyond its addresses, and holds resolvers
// that say so.
//
// # For authors of resolvers
//
// Any gRPC resolver works with the policy. One that knows more of its endpoints attaches the facts to them:
//
//	ep := gresolver.Endpoint{Addresses: []gresolver.Address{{Addr: pod.IP + ":8001"}}}
//	ep = resolver.WithName(ep, pod.Name)  // keeps its place in the ring under a new address
//	ep = resolver.WithWeight(ep, pod.GPUs) // twice the weight, twice the models
//	state.Endpoints = append(state.Endpoints, ep)
//
// The facts live in Endpoint.Attributes, where a change of them reaches the policy and nothing else. Nothing is put into
// Address.Attributes, where any change would drop the connection; resolvers should keep volatile facts out of there too.
//
// # Schemes
//
// Importing this package registers the scheme [StaticScheme]: a list of endpoints with their facts in the target string itself.
package resolver
