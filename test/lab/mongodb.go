package main

import (
	"context"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// ferretdb is a server for MongoDB's protocol. It is a separate module, so that its dependencies are not those of
// Lockstep.
var ferretdb = goCommand{name: "ferretdb", module: "test/ferretdb", pkg: "."}

// planMongoDB plans one process with two ports: FerretDB itself, and FerretDB with serialised changes.
func planMongoDB(s *site, dir string, ports []int) (*Plan, error) {
	data := filepath.Join(dir, "data")
	if err := write(data, nil); err != nil {
		return nil, err
	}
	plain, serial := "mongodb://"+loopback(ports[0])+"/", "mongodb://"+loopback(ports[1])+"/"
	return &Plan{
		Processes: []*Process{{
			Name: "mongodb", Dir: dir, Log: filepath.Join(dir, "log"),
			Command: []string{s.bin("ferretdb"), "-plain", loopback(ports[0]), "-serial", loopback(ports[1]), "-dir",
				data},
			Ready: func(ctx context.Context) error { return pingMongoDB(ctx, serial) },
		}},
		Env: []string{"LOCKSTEP_MONGODB_URL=" + serial, "LOCKSTEP_FERRETDB_URL=" + plain},
	}, nil
}

func pingMongoDB(ctx context.Context, url string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	return client.Ping(ctx, nil)
}
