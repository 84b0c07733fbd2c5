// Package methods knows which RPCs model servers offer, what each does to a server, and where its request message names
// the model. It reads that name from any protobuf message by field number, so it needs no server's generated code.
package methods

import "strings"

// Class says what a method does to a server.
type Class uint8

const (
	// Other is a call that neither infers nor changes anything: health, metadata, statistics. It is the zero value.
	Other Class = iota
	// Infer is a call that a model answers.
	Infer
	// Update is a call that changes a server: it loads a model, registers shared memory, changes a setting.
	Update
)

// String returns the class in lower case.
func (c Class) String() string {
	switch c {
	case Infer:
		return "infer"
	case Update:
		return "update"
	}
	return "other"
}

// Method is what is known of one RPC.
type Method struct {
	Class Class
	// Streaming is true of a method that is a stream whose first message names the model, so that no endpoint can be
	// chosen before that message is there.
	Streaming bool
	// Answers is true of a stream whose every response is the answer to one request and says which model gave it, or what the error is; see
	// ReadResponse.
	Answers bool
	// Model leads to the model's name, which is a string or bytes. Nil means that the request names no model.
	Model Path
	// Version leads to the version as a string or bytes, VersionNumber to the version as an integer, which wins if both are
	// set. Nil means that there is no such field.
	Version, VersionNumber Path
}

// Lookup returns what is known of a method, given as "/package.Service/Method", and whether anything is: the method itself,
// else its service as a whole. It does not allocate.
func Lookup(fullMethod string) (Method, bool) {
	if m, ok := known[fullMethod]; ok {
		return m, true
	}
	if i := strings.LastIndexByte(fullMethod, '/'); i > 0 {
		m, ok := services[fullMethod[:i]]
		return m, ok
	}
	return Method{}, false
}
