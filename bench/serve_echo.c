/* The loopback limit: answers every request with a fixed body, without looking at more than its length.
 * cc -O2 -o echo serve_echo.c; ./echo PORT BODY_BYTES */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_CLIENTS 1024
#define BUFFER (1 << 20)

static char *buffers[MAX_CLIENTS];
static size_t filled[MAX_CLIENTS];

/* The bytes of the first request in the buffer, 0 while it is not whole. */
static size_t whole(char *data, size_t size) {
    char *end = memmem(data, size, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t length = 0;
    for (char *line = data; line < end; line = memmem(line, end - line + 2, "\r\n", 2) + 2)
        if (!strncasecmp(line, "Content-Length:", 15)) length = strtoul(line + 15, NULL, 10);
    size_t all = end + 4 - data + length;
    return all <= size ? all : 0;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int body = atoi(arguments[2]), one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    char *answer = calloc(1, 256 + body);
    int head = sprintf(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n", body);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) return 1;
    int poll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int client = events[i].data.fd;
            if (client == listener) {
                client = accept(listener, NULL, NULL);
                if (client < 0 || client >= MAX_CLIENTS) { if (client >= 0) close(client); continue; }
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                if (!buffers[client]) buffers[client] = malloc(BUFFER);
                filled[client] = 0;
                event = (struct epoll_event){EPOLLIN, {.fd = client}};
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
                continue;
            }
            ssize_t got = read(client, buffers[client] + filled[client], BUFFER - filled[client]);
            if (got <= 0) { close(client); continue; }
            filled[client] += got;
            for (size_t used; (used = whole(buffers[client], filled[client]));) {
                if (write(client, answer, head + body) < 0) break;
                filled[client] -= used;
                memmove(buffers[client], buffers[client] + used, filled[client]);
            }
        }
    }
}
