// Run in the module of the client: go run -C clients/go ../bench/cycle.go
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

func main() {
	ctx, times := context.Background(), []float64{}
	client, err := fencelock.Connect(ctx, "")
	for err == nil && len(times) < 4000 {
		begun, held := time.Now(), (*fencelock.Held)(nil)
		if held, err = client.Lock(ctx, "kept"); err == nil {
			err = held.Release(ctx)
		}
		times = append(times, float64(time.Since(begun).Nanoseconds())/1000)
	}
	if err != nil {
		log.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode(times)
}
