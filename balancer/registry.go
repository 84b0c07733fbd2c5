package balancer

import (
	"container/list"
	"sync"
	"time"

	"github.com/mlbalancer/mlbalancer/picker"
)

// A channel that goes idle closes its balancer and builds another one on the next call. What was learned of the endpoints
// is parked meanwhile.
const (
	// parkFor is how long a closed balancer's endpoints are kept.
	parkFor = 10 * time.Minute
	// maxParked bounds the endpoints that are kept, over all channels of the process, to some 4 MB (4 processors or more); the oldest go first.
	maxParked = 512
)

// parkKey is an endpoint of a channel. The channel is its channelz identity, which is the same before and after idleness and never
// that of another channel.
type parkKey struct {
	channel any
	id      string
}

type parkedEndpoint struct {
	key      parkKey
	addrs    string
	endpoint *picker.Endpoint
	until    time.Time
}

// parking keeps endpoints between the balancers of one channel. An endpoint that is taken is no longer kept, so that two balancers
// which live at the same time never share one.
type parking struct {
	mu    sync.Mutex
	byKey map[parkKey]*list.Element
	order *list.List // of *parkedEndpoint, oldest first
	timer *time.Timer
}

var parked = parking{byKey: map[parkKey]*list.Element{}, order: list.New()}

// take returns the endpoint that was parked for an identity with these addresses, or nil.
func (p *parking) take(channel any, id, addrs string) *picker.Endpoint {
	if channel == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	el := p.byKey[parkKey{channel, id}]
	if el == nil {
		return nil
	}
	e := p.removeLocked(el)
	if e.addrs != addrs || !time.Now().Before(e.until) {
		return nil
	}
	return e.endpoint
}

// park keeps the endpoints of a membership.
func (p *parking) park(channel any, ms *membership) {
	if channel == nil || ms == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(parkFor)
	for id, m := range ms.byID {
		key := parkKey{channel, id}
		if el := p.byKey[key]; el != nil {
			p.removeLocked(el)
		}
		p.byKey[key] = p.order.PushBack(&parkedEndpoint{key, m.addrs, m.endpoint, until})
	}
	for p.order.Len() > maxParked {
		p.removeLocked(p.order.Front())
	}
	p.armLocked()
}

// expire drops what has been kept for long enough.
func (p *parking) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for el := p.order.Front(); el != nil && !now.Before(el.Value.(*parkedEndpoint).until); el = p.order.Front() {
		p.removeLocked(el)
	}
	p.timer = nil
	p.armLocked()
}

// armLocked sets a timer for the oldest endpoint, if there is one and no timer yet.
func (p *parking) armLocked() {
	if el := p.order.Front(); el != nil && p.timer == nil {
		p.timer = time.AfterFunc(time.Until(el.Value.(*parkedEndpoint).until), p.expire)
	}
}

func (p *parking) removeLocked(el *list.Element) *parkedEndpoint {
	e := p.order.Remove(el).(*parkedEndpoint)
	delete(p.byKey, e.key)
	return e
}
