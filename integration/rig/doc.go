// Package rig is what the integration tests are made of: servers in this process that behave as they are told, channels to them
// over an in-memory network, steady load, and a channel without a network that asks a policy's own picker.
//
// A [Fleet] watches over what must hold whatever a test does: calls end by their deadline, callers see no status that nobody sent,
// counts of calls in flight stay in range and return to 0, and once the channels are closed no connection and no goroutine is left.
package rig
