package oip

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestIsRegistered(t *testing.T) {
	t.Parallel()
	assert.Equal(t, source{}, monitor.Lookup("oip"))
}

// A user's own stubs of a server register inference.*: two packages that do so panic at start-up.
func TestRegistersNoMessages(t *testing.T) {
	t.Parallel()
	for _, pkg := range []protoreflect.FullName{"inference", "inference.model_repository"} {
		assert.Zero(t, protoregistry.GlobalFiles.NumFilesByPackage(pkg), pkg)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.Lines(string(out)) {
		if strings.HasPrefix(dep, "github.com/mlbalancer/") {
			assert.Contains(t, dep, "/mlbalancer/health", "and not the protocol of the tests")
		}
	}
}

func TestMLServerAnswersWithAnIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, always(&oip.ServerReadyResponse{}))
		s.set(methodModelIndex, always(&oip.RepositoryIndexResponse{Models: []*oip.RepositoryIndexResponse_ModelIndex{
			{Name: "sum", State: "State.READY"}, {Name: "late", State: "State.LOADING"},
			{Name: "notready", State: "State.UNKNOWN"},
			{Name: "echo", Version: "v1.2", State: "State.READY"}, {Name: "gone", State: "State.UNAVAILABLE"},
		}}))
		s.set(methodModelReady, fails(codes.Unknown, "not to be asked"))
		w := watch(t, s.connect(t), "sum", "nope")
		for range 3 {
			r := w.last(t)
			assert.Equal(t, health.ServerNotReady, r.Server, "one of its models is not")
			assert.Equal(t, map[string]health.ModelState{
				"sum": health.ModelReady, "late": health.ModelLoading, "notready": health.ModelUnavailable,
				"echo": health.ModelReady, "echo:v1.2": health.ModelReady, "gone": health.ModelUnavailable,
			}, states(t, r))
			assert.True(t, r.Complete)
			assert.Equal(t, health.No, r.OnDemand)
		}
		assert.Equal(t, 1, s.called(methodStatistics), "asked once")
		assert.Equal(t, 1, s.called(methodIndex), "asked once")
		assert.Zero(t, s.called(methodModelReady))
		assert.Equal(t, w.count(), s.called(methodModelIndex))
	})
}

// modelReady answers as servers do that have some models, and what they are told of others.
func modelReady(have map[string]bool, others answer) answer {
	return func(ctx context.Context, req *asked) (proto.Message, error) {
		name := req.GetName()
		if req.GetVersion() != "" {
			name += " " + req.GetVersion()
		}
		if is, ok := have[name]; ok {
			return &oip.ModelReadyResponse{Ready: is}, nil
		}
		return others(ctx, req)
	}
}

func TestModelsInUseAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		have     map[string]bool
		others   answer
		models   []string
		want     map[string]health.ModelState
		onDemand health.Answer
	}{
		{"KServe", map[string]bool{"m": true, "n": false},
			fails(codes.NotFound, "Model with name o does not exist."), []string{"m", "n", "o"},
			map[string]health.ModelState{"m": health.ModelReady, "n": health.ModelUnavailable, "o": health.ModelUnavailable},
			health.No},
		{"all there", map[string]bool{"m": true}, nil, []string{"m"},
			map[string]health.ModelState{"m": health.ModelReady}, health.Unknown},
		{"MLServer without its index", map[string]bool{"m": true},
			fails(codes.Unknown, "Unexpected <class 'mlserver.errors.ModelNotFound'>: Model o not found"), []string{"m", "o"},
			map[string]health.ModelState{"m": health.ModelReady, "o": health.ModelUnavailable}, health.No},
		{"an exception is the model's own", map[string]bool{"m": true},
			fails(codes.Internal, "Internal server error"), []string{"o", "m"},
			map[string]health.ModelState{"m": health.ModelReady, "o": health.ModelUnknown}, health.Unknown},
		{"Triton before 22.07", nil, fails(codes.Unavailable, "Request for unknown model: 'o' is not found"), []string{"o"},
			map[string]health.ModelState{"o": health.ModelUnavailable}, health.No},
		{"versions", map[string]bool{"m 3": true, "m": true, "m 4": false},
			fails(codes.NotFound, ""), []string{"m:3", "m:4", "m:", "m"},
			map[string]health.ModelState{
				"m:3": health.ModelReady, "m:4": health.ModelUnavailable, "m:": health.ModelUnavailable, "m": health.ModelReady,
			}, health.No},
		{"a name with a colon", map[string]bool{"llama:8b": true, "x:": true, ":y": true},
			fails(codes.InvalidArgument, "bad version"), []string{"llama:8b", "x:", ":y"},
			map[string]health.ModelState{"llama:8b": health.ModelReady, "x:": health.ModelReady, ":y": health.ModelReady},
			health.Unknown},
		{"no model is in use", nil, nil, nil, map[string]health.ModelState{}, health.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s server
				s.set(methodServerReady, ready)
				s.set(methodModelReady, modelReady(tc.have, tc.others))
				w := watch(t, s.connect(t), tc.models...)
				for range 3 {
					r := w.last(t)
					assert.Equal(t, health.ServerReady, r.Server)
					assert.Equal(t, tc.want, states(t, r))
					assert.False(t, r.Complete)
					assert.Equal(t, tc.onDemand, r.OnDemand)
				}
				for _, method := range []string{methodStatistics, methodIndex, methodModelIndex} {
					assert.Equal(t, 1, s.called(method), "%s is asked once", method)
				}
			})
		})
	}
}

func TestManyModelsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var models []string
		have := make(map[string]bool)
		for i := range maxAsked*2 + 10 {
			models = append(models, fmt.Sprintf("m%d", i))
			have[models[i]] = true
		}
		var s server
		s.set(methodServerReady, ready)
		s.set(methodModelReady, modelReady(have, nil))
		w := watch(t, s.connect(t), models...)
		time.Sleep(2*interval + interval/2)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Len(t, w.reports, 3)
		seen := make(map[string]bool)
		for _, r := range w.reports {
			require.Len(t, states(t, r), maxAsked)
			for _, m := range r.Models {
				seen[m.Name] = true
			}
		}
		assert.Len(t, seen, len(models))
	})
}

func TestServerAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, ready)
		w := watch(t, s.connect(t), "m")
		for range 3 {
			assert.Equal(t, health.Report{Server: health.ServerReady, Interval: interval}, w.last(t))
		}
		for _, method := range []string{methodStatistics, methodIndex, methodModelIndex, methodModelReady} {
			assert.Equal(t, 1, s.called(method), "%s is asked once", method)
		}
	})
}

func TestListThatIsTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, ready)
		s.set(methodStatistics, always(statsList(&oip.ModelStatistics{Name: strings.Repeat("m", maxResponse)})))
		s.set(methodModelReady, modelReady(map[string]bool{"m": true}, nil))
		r := watch(t, s.connect(t), "m").last(t)
		assert.Equal(t, map[string]health.ModelState{"m": health.ModelReady}, states(t, r))
		assert.False(t, r.Complete)
		assert.Equal(t, 1, s.called(methodStatistics))
	})
}

func TestAnswersOfServerReady(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code codes.Code
		text string
		want health.ServerState // unknown: the watch ends with the status
	}{
		{codes.Unavailable, "Server exiting", health.ServerDraining},
		{codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests", health.ServerDraining},
		{codes.Unavailable, "Server is not live", health.ServerDraining},
		{codes.Unavailable, "Cancelling all calls", health.ServerDraining},
		{codes.Unavailable, "Server not ready", health.ServerNotReady},
		{codes.Unavailable, "Server is not ready", health.ServerNotReady},
		{codes.Unavailable, "no healthy upstream", health.ServerUnknown},
		{codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-k'", health.ServerUnknown},
		{codes.Unimplemented, "unknown service inference.GRPCInferenceService", health.ServerUnknown},
		{codes.DeadlineExceeded, "", health.ServerUnknown},
		{codes.Internal, "Server exiting", health.ServerUnknown},
		{codes.PermissionDenied, "RBAC: access denied", health.ServerUnknown},
		{codes.Canceled, "", health.ServerUnknown},
	} {
		t.Run(tc.code.String()+" "+tc.text, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s server
				s.set(methodServerReady, fails(tc.code, tc.text))
				w := watch(t, s.connect(t))
				if tc.want != health.ServerUnknown {
					assert.Equal(t, tc.want, w.last(t).Server)
					return
				}
				reports, err := w.ended(t)
				assert.Equal(t, tc.code.String(), status.Code(err).String())
				assert.Equal(t, tc.text, status.Convert(err).Message())
				assert.Zero(t, reports, "nothing is known")
			})
		})
	}
}

func TestServerIsPolledOnWhileItExits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, fails(codes.Unavailable, "Server exiting"))
		s.set(methodStatistics, never)
		w := watch(t, s.connect(t))
		require.Equal(t, health.ServerDraining, w.last(t).Server)
		assert.Zero(t, s.called(methodStatistics), "its models do not matter")
		s.set(methodServerReady, ready)
		s.set(methodStatistics, always(statsList()))
		assert.Equal(t, health.ServerReady, w.last(t).Server)
	})
}

func TestMalformedResponsesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		method string
		raw    []byte
		want   string
	}{
		{methodServerReady, []byte{8}, "oip: malformed response of /inference.GRPCInferenceService/ServerReady: field 1: "},
		{methodServerReady, []byte{0}, "ServerReady: tag after field 0: "},
		{methodStatistics, []byte{10, 5, 10}, "ModelStatistics: field 1: "},
		{methodStatistics, []byte{10, 2, 10, 9}, "ModelStatistics: model_stats: field 1: "},
		{methodStatistics, []byte{10, 4, 50, 2, 10, 9}, "ModelStatistics: model_stats: inference_stats: field 1: "},
		{methodStatistics, []byte{10, 5, 50, 3, 26, 1, 16}, "ModelStatistics: model_stats: inference_stats: field 3: field 2: "},
		{methodIndex, []byte{10, 2, 10, 9}, "RepositoryIndex: models: field 1: "},
		{methodModelReady, []byte{8, 128}, "ModelReady: field 1: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s server
			s.set(methodServerReady, ready)
			s.set(tc.method, raw(tc.raw))
			_, err := watch(t, s.connect(t), "m").ended(t)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
