package retry

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// splitOnFinish takes the grpc.OnFinish options out of opts: gRPC would call them for each attempt.
func splitOnFinish(opts []grpc.CallOption) (rest []grpc.CallOption, finish []grpc.OnFinishCallOption) {
	for i, opt := range opts {
		if f, ok := opt.(grpc.OnFinishCallOption); ok {
			if finish == nil {
				rest = append(rest, opts[:i]...)
			}
			finish = append(finish, f)
		} else if finish != nil {
			rest = append(rest, opt)
		}
	}
	if finish == nil {
		return opts, nil
	}
	return rest, finish
}

// hold empties what opts receive from a server, which an attempt that reaches none leaves as it is. restore puts it back.
func hold(opts []grpc.CallOption) (restore func()) {
	var undo []func()
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			was := *opt.HeaderAddr
			*opt.HeaderAddr = nil
			undo = append(undo, func() { *opt.HeaderAddr = was })
		case grpc.TrailerCallOption:
			was := *opt.TrailerAddr
			*opt.TrailerAddr = nil
			undo = append(undo, func() { *opt.TrailerAddr = was })
		case grpc.PeerCallOption:
			was := *opt.PeerAddr
			*opt.PeerAddr = peer.Peer{}
			undo = append(undo, func() { *opt.PeerAddr = was })
		}
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}
}

// reset empties a reply that a failed attempt may have filled: a server can send its answer and then an error. Codecs of
// other kinds of messages are to overwrite what is there, as they are without retries.
func reset(reply any) {
	switch reply := reply.(type) {
	case interface{ Reset() }: // every generation of generated code
		reply.Reset()
	case *[]byte:
		*reply = (*reply)[:0]
	}
}
