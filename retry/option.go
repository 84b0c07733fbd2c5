package retry

import "fmt"

// The defaults of the options, and the most attempts that a call can have.
const (
	defaultAttempts     = 3
	maxAttempts         = 5
	defaultRatio        = 0.2
	defaultMinPerSecond = 10
)

// Option is a choice for UnaryClientInterceptor.
type Option func(*retrier)

// WithMaxAttempts sets how many attempts a call has at most, the first one included: 1 to 5, by default 3. With 1 no call is tried
// again. Whatever n is, a model that is missing is looked for on at most three servers. It panics if n is out of range.
func WithMaxAttempts(n int) Option {
	if n < 1 || n > maxAttempts {
		panic(fmt.Sprintf("retry: WithMaxAttempts: n is %d, want 1 to %d", n, maxAttempts))
	}
	return func(r *retrier) { r.attempts = n }
}

// WithBudget sets what attempts after the first are paid from. Interceptors of several channels, and others that add attempts,
// may share one. Nil means one of its own for each interceptor, as if the option were not there: NewBudget(0.2, 10).
func WithBudget(b *Budget) Option { return func(r *retrier) { r.budget = b } }

// WithStats sets where the interceptor counts what it does. Nil means nowhere.
func WithStats(s *Stats) Option { return func(r *retrier) { r.stats = s } }

func newRetrier(opts []Option) *retrier {
	r := &retrier{attempts: defaultAttempts}
	for _, opt := range opts {
		opt(r)
	}
	if r.budget == nil {
		r.budget = NewBudget(defaultRatio, defaultMinPerSecond)
	}
	if r.stats == nil {
		r.stats = &Stats{}
	}
	return r
}
