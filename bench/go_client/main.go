// Command go_client publishes to Danube's gRPC interface with grpc-go.
//
// Each of some connections makes some calls at a time, one message each.  It prints the
// rate, the times of calls and its own processor time as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	wire "google.golang.org/protobuf/encoding/protowire"
)

const payloadBytes = 100

// rawCodec sends and receives messages that are encoded already.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = slices.Clone(data)
	return nil
}

func (rawCodec) Name() string { return "proto" }

func appendText(message []byte, field wire.Number, text string) []byte {
	return wire.AppendString(wire.AppendTag(message, field, wire.BytesType), text)
}

func appendNumber(message []byte, field wire.Number, number uint64) []byte {
	return wire.AppendVarint(wire.AppendTag(message, field, wire.VarintType), number)
}

// numberOf returns the number in a field of a message, or 0.
func numberOf(message []byte, wanted wire.Number) uint64 {
	for len(message) > 0 {
		field, kind, size := wire.ConsumeTag(message)
		message = message[size:]
		if field == wanted && kind == wire.VarintType {
			number, _ := wire.ConsumeVarint(message)
			return number
		}
		message = message[wire.ConsumeFieldValue(field, kind, message):]
	}
	return 0
}

func call(connection *grpc.ClientConn, method string, request []byte) []byte {
	var answer []byte
	path := "/danube.ProducerService/" + method
	if err := connection.Invoke(context.Background(), path, &request, &answer); err != nil {
		log.Fatal(err)
	}
	return answer
}

// producer is one connection with one producer.
type producer struct {
	connection *grpc.ClientConn
	id         uint64
	name       string
	topic      string
}

func open(address, name, topic string) producer {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(address, plain)
	if err != nil {
		log.Fatal(err)
	}
	request := appendText(appendText(nil, 2, name), 3, topic)
	// A reliable topic.
	request = appendNumber(request, 6, 1)
	id := numberOf(call(connection, "CreateProducer", request), 2)
	return producer{connection, id, name, topic}
}

// publish sends one message after the other until the end, and returns the times.
func (p producer) publish(end time.Time) (times []time.Duration) {
	payload := make([]byte, payloadBytes)
	for at := range payload {
		payload[at] = byte(at*37 + at*at)
	}
	id := appendText(appendNumber(nil, 1, p.id), 2, p.topic)
	for number := uint64(1); ; number++ {
		begun := time.Now()
		if begun.After(end) {
			return times
		}
		message := appendText(appendNumber(nil, 1, number), 2, string(id))
		message = appendText(message, 3, string(payload))
		message = appendNumber(message, 4, uint64(begun.UnixMilli()))
		call(p.connection, "SendMessage", appendText(message, 5, p.name))
		times = append(times, time.Since(begun))
	}
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func main() {
	address := flag.String("address", "127.0.0.1:6650", "the gRPC port of the broker")
	connections := flag.Int("connections", 64, "how many connections")
	calls := flag.Int("calls", 1, "how many calls at a time on each connection")
	seconds := flag.Float64("seconds", 3, "how long to publish")
	flag.Parse()
	encoding.RegisterCodec(rawCodec{})
	var producers []producer
	for number := range *connections {
		name := fmt.Sprintf("go-%d", number)
		producers = append(producers, open(*address, name, "/default/go-client"))
	}
	var lock sync.Mutex
	var running sync.WaitGroup
	var times []time.Duration
	used, begun := processorTime(), time.Now()
	end := begun.Add(time.Duration(*seconds * float64(time.Second)))
	for _, each := range producers {
		for range *calls {
			running.Add(1)
			go func() {
				defer running.Done()
				own := each.publish(end)
				lock.Lock()
				defer lock.Unlock()
				times = append(times, own...)
			}()
		}
	}
	running.Wait()
	elapsed, used := time.Since(begun), processorTime()-used
	slices.Sort(times)
	err := json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"messages":  float64(len(times)),
		"rate":      float64(len(times)) / elapsed.Seconds(),
		"p50_us":    float64(times[len(times)/2].Microseconds()),
		"p99_us":    float64(times[len(times)*99/100].Microseconds()),
		"client_us": float64(used.Microseconds()) / float64(len(times)),
	})
	if err != nil {
		log.Fatal(err)
	}
}
