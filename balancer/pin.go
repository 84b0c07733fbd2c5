package balancer

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/picker"
)

// pinned is why a call was not sent to the one endpoint that it may go to. It is no gRPC status, so calls that wait for ready do
// wait: until the endpoint is connected again, or its breaker passes calls.
type pinned struct {
	pin *picker.Pin
	why string
}

// Error implements error.
func (p *pinned) Error() string {
	return fmt.Sprintf("%s: %s is held by %s, %s", Name, p.pin.Name(), p.pin.Endpoint().ID(), p.why)
}

// refusePinned returns what a call gets that its endpoint cannot take. An endpoint that has left is not worth waiting for:
// that is a status.
func (s *snapshot) refusePinned(pin *picker.Pin) error {
	e := pin.Endpoint()
	if !s.table.Lists(e) {
		return status.Error(codes.Unavailable, (&pinned{pin, "which is no longer one of the channel's endpoints"}).Error())
	}
	if s.table.Takes(e) {
		s.wake()
		return &pinned{pin, "whose breaker, or the model's there, is open"}
	}
	return &pinned{pin, "which is not connected, or is to get no calls"}
}
