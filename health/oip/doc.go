// Package oip is the health source "oip": it polls servers that speak the Open Inference Protocol over gRPC
// (inference.GRPCInferenceService: Triton, MLServer, KServe, OpenVINO Model Server) for whether they are ready, which models they
// have ready, how long requests wait and how long models take. Importing it registers it.
//
// What can be known of models depends on the server. The ways are tried in this order, and the first one that the server offers
// is kept to for as long as the connection answers:
//
//  1. ModelStatistics (Triton): the models that are ready, and from the counters' growth between two polls Load.QueueDelay (if
//     there were calls) and Model.Service (the last that is known). The list is complete.
//  2. RepositoryIndex (MLServer, in a service of its own): the state of every model in the repository. The list is complete.
//  3. ModelReady (KServe, OpenVINO Model Server): asked for each model that the channel uses, at most 64 at a poll, in turn if
//     there are more.
//  4. None: the report is of the server alone.
//
// A list names a model "name", ready if one of its versions is, and each of its versions "name:version". Of a list that is longer
// than 4,096 entries the rest is left out, and it is then not said to be complete. Names longer than 512 bytes are left out too:
// no call can have them. A list larger than 16 MiB is not read, and the next way is tried.
//
// ServerReady is reported as what it is: Triton says not ready while it loads or unloads any model, and for good once a load has
// failed (--strict-readiness, its default), and serves its other models all the while. What the models are is read just the same.
//
// Nothing is registered with protobuf or gRPC: the messages are read field by field.
package oip
