// Two ranks pass messages of many sizes to and fro and check every byte.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char expected(int exchange, int i) { return (unsigned char)(exchange * 7 + i); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    fprintf(stderr, "mpi: run me with two ranks, not %d\n", size);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int largest = 4 << 20;
  unsigned char* buffer = malloc(largest);
  int exchanges = 0, wrong = 0;
  for (int length = 1; length <= largest; length *= 4) {
    for (int turn = 0; turn < 20; ++turn, ++exchanges) {
      if (rank == 0) {
        for (int i = 0; i < length; ++i) buffer[i] = expected(exchanges, i);
        MPI_Send(buffer, length, MPI_BYTE, 1, exchanges, MPI_COMM_WORLD);
        for (int i = 0; i < length; ++i) buffer[i] = 0;
        MPI_Recv(buffer, length, MPI_BYTE, 1, exchanges, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; ++i) wrong += buffer[i] != expected(exchanges, i);
      } else {
        MPI_Recv(buffer, length, MPI_BYTE, 0, exchanges, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, length, MPI_BYTE, 0, exchanges, MPI_COMM_WORLD);
      }
    }
  }
  int sum = rank, total = 0;
  MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (total != 1) wrong++;
  if (rank == 0 && wrong == 0) printf("mpi: all %d exchanges right\n", exchanges);
  if (rank == 0 && wrong != 0) printf("mpi: %d bytes wrong\n", wrong);
  free(buffer);
  MPI_Finalize();
  return wrong != 0;
}
