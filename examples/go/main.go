// An application with the Go client: a protected route that publishes an event, and verified webhooks.
// Its settings are the environment variables that it reads. RESOURCE is its own URL, as clients see it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	gatepost "gatepost.example/client"
)

func main() {
	resource := os.Getenv("RESOURCE")
	verifier, err := gatepost.NewVerifier(gatepost.VerifierOptions{
		Issuer: os.Getenv("GATEPOST"), Audience: resource, BaseURL: resource,
	})
	api, err2 := gatepost.New(gatepost.Options{
		URL: os.Getenv("GATEPOST"), EventsURL: os.Getenv("EVENTS"),
		ClientID: os.Getenv("CLIENT_ID"), ClientSecret: os.Getenv("CLIENT_SECRET"),
	})
	listener, err3 := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err := errors.Join(err, err2, err3); err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /invoices/{number}/pay", func(w http.ResponseWriter, r *http.Request) {
		claims, err := verifier.Verify(r, "invoices:pay")
		if err != nil {
			gatepost.Refuse(w, err)
			return
		}
		invoice := json.Number(r.PathValue("number"))
		event, err := api.PublishEvent(r.Context(), gatepost.Event{
			Type: "invoice.paid", Source: resource, ID: invoice.String() + "-paid",
			Data: map[string]any{"invoice": invoice, "by": claims.Subject},
		})
		if err != nil {
			http.Error(w, "The event cannot be published.", http.StatusBadGateway)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"paid": invoice, "event": event.ID})
	})
	http.HandleFunc("POST /webhooks", func(w http.ResponseWriter, r *http.Request) {
		event, err := gatepost.ReadWebhook(r, os.Getenv("WEBHOOK_SECRET"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println("received", event.ID, string(event.Data)) // store the ID: a webhook may arrive more than once
		w.WriteHeader(http.StatusNoContent)
	})
	fmt.Println("serving", resource)
	log.Fatal(http.Serve(listener, nil))
}
