// Package health says what is known of an endpoint beside the outcome of its calls: the Report that a source makes of a server, and the
// Score that a client makes of an endpoint. It knows no gRPC and keeps no clock: the sources of reports are its sub-packages, each over
// a connection, and time is an argument everywhere.
package health
