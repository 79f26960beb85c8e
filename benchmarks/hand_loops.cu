// Hand-written CUDA loops: one policy each, nine Bernoulli arms, one thread a game.
//     nvcc -O3 -arch=native -o hand_loops hand_loops.cu && ./hand_loops GAMES ROUNDS
// prints the policy, steps a second and the mean regret. gpu_by_hand.py compares them.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int ARMS = 9;
__constant__ double MEANS[ARMS] = {0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7};

struct Stream {  // Philox 4x32-10, two words of 64 bits a call
    uint64_t place, count, spare;
    __device__ uint64_t word() {
        if (count++ & 1) return spare;
        uint64_t low = (count - 1) >> 1;
        uint32_t a = low, b = low >> 32, c = place, d = place >> 32, k = 1, w = 0;
        for (int i = 0; i < 10; i++) {
            uint64_t first = uint64_t(a) * 0xD2511F53u, second = uint64_t(c) * 0xCD9E8D57u;
            a = uint32_t(second >> 32) ^ b ^ k, b = uint32_t(second);
            c = uint32_t(first >> 32) ^ d ^ w, d = uint32_t(first);
            k += 0x9E3779B9u, w += 0xBB67AE85u;
        }
        spare = c | uint64_t(d) << 32;
        return a | uint64_t(b) << 32;
    }
    __device__ double uniform() { return double(int64_t(word() >> 11)) * 0x1p-53; }
    __device__ double open() { return (double(int64_t(word() >> 11)) + 0.5) * 0x1p-53; }
    __device__ double normal() {
        double radius = sqrt(-2.0 * log(open()));
        return radius * cospi(2.0 * uniform());
    }
    __device__ double laplace(double scale) {
        uint64_t bits = word();
        double size = -scale * log((double(int64_t(bits >> 11)) + 0.5) * 0x1p-53);
        return bits & 1 ? -size : size;
    }
};

__device__ Stream stream(uint64_t game, int number) { return {2 * game + number, 0, 0}; }

__global__ void ucb1(int games, int rounds, double* regret) {
    int game = blockIdx.x * blockDim.x + threadIdx.x;
    if (game >= games) return;
    Stream world = stream(game, 1);
    double sums[ARMS] = {}, means[ARMS] = {}, widths[ARMS] = {}, lost = 0.0;
    int pulls[ARMS] = {};
    for (int t = 1; t <= rounds; t++) {
        int best = t - 1;
        if (t > ARMS) {
            double scale = sqrt(2.0 * log(double(t))), highest = -INFINITY;
#pragma unroll
            for (int arm = 0; arm < ARMS; arm++) {
                double index = means[arm] + scale * widths[arm];
                if (index > highest) best = arm, highest = index;
            }
        }
        double reward = world.uniform() < MEANS[best] ? 1.0 : 0.0;
        lost += MEANS[ARMS - 1] - MEANS[best];
#pragma unroll
        for (int arm = 0; arm < ARMS; arm++)
            if (arm == best) {
                sums[arm] += reward, pulls[arm]++;
                means[arm] = sums[arm] / pulls[arm], widths[arm] = rsqrt(double(pulls[arm]));
            }
    }
    regret[game] = lost;
}

__global__ void ftpl_gauss(int games, int rounds, int start, double* regret) {
    int game = blockIdx.x * blockDim.x + threadIdx.x;
    if (game >= games) return;
    Stream own = stream(game, 0), world = stream(game, 1);
    double sums[ARMS] = {}, lost = 0.0;
    int pulls[ARMS] = {};
    for (int t = 1; t <= rounds; t++) {
        int best = (t - 1) % ARMS;
        if (t > ARMS * start) {
            double highest = -INFINITY;
#pragma unroll
            for (int arm = 0; arm < ARMS; arm++) {
                double step = 1.0 / pulls[arm];
                double theta = sums[arm] * step + sqrt(2.0 * step) * own.normal();
                if (theta > highest) best = arm, highest = theta;
            }
        }
        double reward = world.uniform() < MEANS[best] ? 1.0 : 0.0;
        lost += MEANS[ARMS - 1] - MEANS[best];
#pragma unroll
        for (int arm = 0; arm < ARMS; arm++)
            if (arm == best) sums[arm] += reward, pulls[arm]++;
    }
    regret[game] = lost;
}

__device__ double private_kl(double x, double y, double epsilon) {
    if (y >= 1.0) return epsilon * (1.0 - x);
    double shrunk = y * exp(-epsilon);
    if (x * (1.0 - y) < (1.0 - x) * shrunk)
        return fmax(-epsilon * x - log(1.0 - y + shrunk), 0.0);
    if (x == y) return 0.0;
    double sum = 0.0;
    if (x > 0.0) sum += x * log(x / y);
    if (x < 1.0) sum += (1.0 - x) * log((1.0 - x) / (1.0 - y));
    return fmax(sum, 0.0);
}

// dp-imed with index="paper", batches="ratio"; first batches one arm after the other.
__global__ void dp_imed(int games, int rounds, double epsilon, double* regret) {
    int game = blockIdx.x * blockDim.x + threadIdx.x;
    if (game >= games) return;
    Stream own = stream(game, 0), world = stream(game, 1);
    double sums[ARMS] = {}, lost = 0.0;
    int pulls[ARMS] = {}, batches[ARMS] = {}, arm = 0, fresh = 0;
    for (int t = 0; t < rounds;) {
        if (fresh < ARMS) {
            arm = fresh++;
        } else {
            double top = 0.0, lowest = INFINITY;
            for (int a = 0; a < ARMS; a++) top = fmax(top, fmin(sums[a] / pulls[a], 1.0));
            for (int a = 0; a < ARMS; a++) {
                double x = fmin(fmax(sums[a] / pulls[a], 0.0), 1.0), n = pulls[a];
                double index = n * private_kl(x, top, epsilon) + log(n);
                if (index < lowest) arm = a, lowest = index;
            }
        }
        double after = ceil(30.0 / epsilon * pow(1.5, double(batches[arm]++)));
        int size = max(int(after) - pulls[arm], 1), played = min(size, rounds - t), hits = 0;
        for (int i = 0; i < played; i++) hits += world.uniform() < MEANS[arm];
        lost += played * (MEANS[ARMS - 1] - MEANS[arm]);
        t += played, pulls[arm] += played;
        sums[arm] += hits + own.laplace(1.0 / epsilon);
    }
    regret[game] = lost;
}

template <typename Launch> void timed(const char* name, int games, int rounds, Launch launch) {
    double* regret;
    cudaMalloc(&regret, games * sizeof(double));
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    int blocks = (games + 63) / 64;
    launch(blocks, 100, regret);
    cudaEventRecord(begin);
    launch(blocks, rounds, regret);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float milliseconds;
    cudaEventElapsedTime(&milliseconds, begin, end);
    std::vector<double> all(games);
    cudaMemcpy(all.data(), regret, games * sizeof(double), cudaMemcpyDeviceToHost);
    double total = 0.0;
    for (double each : all) total += each;
    printf("%s %.4e %.2f\n", name, 1e3 * games * double(rounds) / milliseconds, total / games);
    fflush(stdout);
    cudaFree(regret);
}

int main(int count, char** arguments) {
    int games = count > 1 ? atoi(arguments[1]) : 270336;
    int rounds = count > 2 ? atoi(arguments[2]) : 100000;
    timed("ucb1", games, rounds, [=](int blocks, int t, double* out) {
        ucb1<<<blocks, 64>>>(games, t, out);
    });
    timed("dp-ftpl-gauss", games, rounds, [=](int blocks, int t, double* out) {
        ftpl_gauss<<<blocks, 64>>>(games, t, 8, out);
    });
    timed("dp-imed", games, rounds, [=](int blocks, int t, double* out) {
        dp_imed<<<blocks, 64>>>(games, t, 1.0, out);
    });
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
