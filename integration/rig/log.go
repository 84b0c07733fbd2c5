package rig

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"
)

// Log keeps what gRPC and its policies log as warnings and errors. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	lines []string

	listener atomic.Pointer[func(line string)]
}

// CaptureLog makes a Log the place that grpclog writes to. It must be called before anything logs: in TestMain.
func CaptureLog() *Log {
	l := &Log{}
	grpclog.SetLoggerV2(logger{l})
	return l
}

// Count returns how many lines contain all of some texts.
func (l *Log) Count(texts ...string) int { return len(l.Lines(texts...)) }

// Lines returns the lines that contain all of some texts.
func (l *Log) Lines(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
lines:
	for _, line := range l.lines {
		for _, t := range texts {
			if !strings.Contains(line, t) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// Listen calls f with each line of information, which is not kept, on the goroutine that logs it, until stop is called.
func (l *Log) Listen(f func(line string)) (stop func()) {
	l.listener.Store(&f)
	return func() { l.listener.CompareAndSwap(&f, nil) }
}

// inform passes a line of information on.
func (l *Log) inform(line string) {
	if f := l.listener.Load(); f != nil {
		(*f)(line)
	}
}

// maxLines bounds what is kept.
const maxLines = 100_000

func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) < maxLines {
		l.lines = append(l.lines, line)
	}
}

// logger is a Log as grpclog wants it.
type logger struct{ *Log }

// Info implements grpclog.LoggerV2.
func (l logger) Info(args ...any) { l.inform(fmt.Sprint(args...)) }

// Infoln implements grpclog.LoggerV2.
func (l logger) Infoln(args ...any) { l.inform(fmt.Sprintln(args...)) }

// Infof implements grpclog.LoggerV2.
func (l logger) Infof(format string, args ...any) { l.inform(fmt.Sprintf(format, args...)) }

// Warning implements grpclog.LoggerV2.
func (l logger) Warning(args ...any) { l.add(fmt.Sprint(args...)) }

// Warningln implements grpclog.LoggerV2.
func (l logger) Warningln(args ...any) { l.add(fmt.Sprintln(args...)) }

// Warningf implements grpclog.LoggerV2.
func (l logger) Warningf(format string, args ...any) { l.add(fmt.Sprintf(format, args...)) }

// Error implements grpclog.LoggerV2.
func (l logger) Error(args ...any) { l.add(fmt.Sprint(args...)) }

// Errorln implements grpclog.LoggerV2.
func (l logger) Errorln(args ...any) { l.add(fmt.Sprintln(args...)) }

// Errorf implements grpclog.LoggerV2.
func (l logger) Errorf(format string, args ...any) { l.add(fmt.Sprintf(format, args...)) }

// Fatal implements grpclog.LoggerV2.
func (l logger) Fatal(args ...any) { l.Fatalln(args...) }

// Fatalln implements grpclog.LoggerV2.
func (logger) Fatalln(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// Fatalf implements grpclog.LoggerV2.
func (l logger) Fatalf(format string, args ...any) { l.Fatalln(fmt.Sprintf(format, args...)) }

// V implements grpclog.LoggerV2.
func (logger) V(int) bool { return false }
